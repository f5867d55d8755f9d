"""Checks mutants in Triton's interpreter; run as a script with TRITON_INTERPRET=1 and a request on stdin.

The argument is a folder for the sources; the request is a JSON list of pairs: the key of a run, and families. One JSON
line comes back for each, in order. Where families is null the check itself is run, which stops at the first that fails;
else those families (none named: all), each on its own.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import triton

from tests.garbage import collect_less
from tests.mutation.catalogue import honest_runs, runs
from tests.mutation.mutant import Run
from tests.mutation.rewriting import rewrite
from tests.mutation.setups import CAUSAL_SHAPE, SETUPS, options
from tuner.check_plan import CheckPlan, plan
from tuner.checking import check
from tuner.config import Config
from tuner.evaluating import Candidate, InterpretJob
from tuner.interpreter import repair_interpreter
from tuner.operators import get
from tuner.problem import Problem
from tuner.reference_cache import ReferenceCache
from tuner.rendering import render
from tuner.space import BoundSpace, load_space
from tuner.targets import target
from tuner.template import read_template
from tuner.worker.messages import WorkerState

_SEED = 0


@dataclass(frozen=True)
class Prepared:
    """A mutant's problem and its rendered source as the tuner's worker takes them."""

    problem: Problem
    candidate: Candidate


@dataclass(frozen=True)
class _Place:
    """A config bound to its problem, with the template's source as it is rendered when nothing is wrong."""

    problem: Problem
    space: BoundSpace
    config: Config
    honest: str


@cache
def _place(
    operator: str,
    template: str,
    dtype: str,
    causal: bool,
    shape: tuple[tuple[str, int], ...],
    more: str,
    others: tuple[tuple[str, float | str], ...],
) -> _Place:
    setup = SETUPS[operator][template]
    sizes = {**setup.shape, **(CAUSAL_SHAPE if causal else {}), **dict(shape)}
    problem = get(operator).problem(sizes, dtype, {**setup.options, **options(causal), **dict(others)})
    space = load_space(operator).bind(problem, target("h200"))
    config = space.parse(",".join(filter(None, [f"template={template}", setup.config, more])))
    honest = render(space.template(config), dict(config.switches), triton.__version__).source
    return _Place(problem, space, config, honest)


def prepare(run: Run, folder: Path) -> Prepared:
    """Rewrite the template, render it, and say what the check needs to know, as the tuner does for a config."""
    mutant = run.mutant
    shape = tuple(mutant.shape.items())
    others = tuple(mutant.options.items())
    at = _place(mutant.operator, run.template, run.dtype, mutant.causal, shape, mutant.config, others)
    space, config, template = at.space, at.config, at.space.template(at.config)
    source = at.honest
    changes = mutant.changes[run.template]
    if changes:
        wrong = read_template(mutant.operator, run.template, template.path, rewrite(template.source, changes))
        source = render(wrong, dict(config.switches), triton.__version__).source
        if source == at.honest:
            raise ValueError(f"{run.key} changes nothing that its config runs")
    path = folder / f"{hashlib.sha256(run.key.encode()).hexdigest()}.py"
    path.write_text(source, encoding="utf-8")
    candidate = Candidate(
        run.key,
        str(path),
        space.launch_arguments(config),
        space.tiles(config),
        space.max_tiles(config),
        space.precision(config),
    )
    return Prepared(at.problem, candidate)


def outcome(prepared: Prepared, state: WorkerState) -> dict[str, Any]:
    """What the worker's own job finds."""
    report = InterpretJob(prepared.problem, prepared.candidate, _SEED)(state).check
    last = report.families[-1]
    ratio = report.worst_ratio if report.passed else last.ratio
    where = {"family": last.family, "problem": last.problem, "reason": last.reason, "ratio": ratio}
    return {"passed": report.passed, **where}


def fallen_on(prepared: Prepared, state: WorkerState, families: Sequence[str]) -> dict[str, Any]:
    """By family, on how many problems it rejects the mutant; each is run on its own.

    Where ``families`` are named, whether each rejects it: the rest of a family is not run once one problem has.
    """
    candidate, operator = prepared.candidate, get(prepared.problem.operator)
    cache = state.keep("references", ReferenceCache)
    checks = plan(operator, prepared.problem, candidate.tiles, candidate.max_tiles, candidate.profile, full_size=False)
    fell: dict[str, int] = {}
    for planned in checks.checks:
        if families and (planned.family not in families or fell.get(planned.family)):
            continue
        report = check(candidate.launch(few_programs=True), operator, CheckPlan((planned,)), "cpu", _SEED, cache)
        fell[planned.family] = fell.get(planned.family, 0) + (not report.passed)
    return {"fell": fell}


def main(folder: Path) -> None:
    collect_less()
    request = json.load(sys.stdin)
    every = runs(every_dtype=True)
    known = {run.key: run for run in (*every, *honest_runs(every))}
    repair_interpreter()
    state = WorkerState()
    ready: dict[str, Prepared] = {}  # a run may be asked for by several families
    for key, families in request:
        started = time.perf_counter()
        if key not in ready:
            ready[key] = prepare(known[key], folder)
        prepared = ready[key]
        found = outcome(prepared, state) if families is None else fallen_on(prepared, state, families)
        line = {"key": key, "seconds": round(time.perf_counter() - started, 3), **found}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
