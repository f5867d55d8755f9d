"""Databases of made-up winners that are valid: real variants of the shipped spaces, passed checks, stored times."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tuner.config import Config, Value
from tuner.device import Device, Stack
from tuner.operators import get
from tuner.problem import Problem
from tuner.rendering import render
from tuner.space import BoundSpace, load_space
from tuner.store.records import WINNER, StudySpec, WinnerRecord
from tuner.store.store import Store
from tuner.targets import target
from tuner.trial import CheckReport, CompileReport, FamilyReport, KernelResources, Measurement, Outcome, TrialRecord

H200 = replace(target("h200"), memory_bytes=150_000_000_000)
H100 = target("h100")
MEASURED = Stack("measured", "3.9.0", "2.13.0", "ptxas 13.0", "580.159", "13.0")
ESTIMATED = Stack("estimated", "3.9.0", "2.13.0", "ptxas 13.0")

Us = Callable[[Problem, Config], float]


def softmax(rows: int, cols: int, dtype: str = "fp16", **shape: int) -> Problem:
    return get("softmax").problem({"rows": rows, "cols": cols, **shape}, dtype)


def attention(q_len: int, head_dim: int = 64, dtype: str = "fp16", **rest: int | bool) -> Problem:
    options = {name: bool(value) for name, value in rest.items() if name in ("causal", "allow_tf32")}
    shape = {name: int(value) for name, value in rest.items() if name not in options}
    sizes = {"batch": 1, "heads": 2, "q_len": q_len, "head_dim": head_dim, **shape}
    return get("attention_fwd").problem(sizes, dtype, options)


def passed(problem: Problem, without: Iterable[str] = ()) -> CheckReport:
    """A check that ran every family of today, but those in ``without``."""
    names = [name for name in get(problem.operator).families(problem) if name not in set(without)]
    return CheckReport(tuple(FamilyReport(n, problem.label, True, 0.5, 1e-4, 2e-4) for n in names), 0, 0.1)


def store_winner(
    database: str | Path,
    problem: Problem,
    *configs: str,
    device: Device = H200,
    stack: Stack = MEASURED,
    space: str | Path | None = None,
    check: CheckReport | None = None,
    us: Us | Mapping[str, float] | None = None,
) -> Config:
    """One finished study: ``configs`` (as ``--config`` takes them) were timed, and the fastest won. Returns it.

    ``us``: the time by config, or by the text of a config; without it the first is the fastest.
    """
    chosen = load_space(space or problem.operator)
    bound = chosen.bind(problem, device, gpu=stack.mode == "measured")
    given = {text: bound.parse(text) for text in configs}
    times = {}
    for place, (text, config) in enumerate(given.items()):
        times[config.key] = us(problem, config) if callable(us) else us[text] if us else 10.0 + place
    with Store.open(str(database)) as store:
        study = store.start_study(
            StudySpec(
                problem=problem,
                device=device,
                stack=stack,
                space_name=problem.operator,
                space_digest=bound.digest,
                space_text=chosen.path.read_text(encoding="utf-8"),
                sampler="tpe",
                seed=0,
                protocol="graph-1",
            )
        )
        trials = {}
        for config in given.values():
            trials[config.key] = _trial(store, study.id, bound, config, times[config.key], check or passed(problem))
        best = min(given.values(), key=lambda config: times[config.key])
        fastest, slowest = times[best.key], max(times.values())
        store.record_winner(
            study.id,
            WinnerRecord(
                trial_id=trials[best.key],
                kind=WINNER,
                verdict="the fastest of the finals",
                median_us=fastest,
                low_us=fastest,
                high_us=fastest,
                estimated=stack.mode == "estimated",
                plain_us=slowest,
                speedup=slowest / fastest,
            ),
        )
        store.finish_study(study.id, "finished", 1.0, 0.5)
    return best


def _trial(store: Store, study: int, bound: BoundSpace, config: Config, us: float, check: CheckReport) -> int:
    switches: dict[str, Value] = dict(config.switches)
    variant = render(bound.template(config), switches, "3.9.0")
    binary = hashlib.sha256(f"{variant.hash}{config.key}".encode()).hexdigest()
    warps = config.values.get("num_warps", 4)
    assert isinstance(warps, int)
    kernel = KernelResources("kernel", 40, 0, 1024, 32 * warps)
    record = TrialRecord(
        config,
        variant.hash,
        Outcome.TIMED,
        value_us=us,
        compile_report=CompileReport(binary, (kernel,), 0.1, (), (8,)),
        check_report=check,
        measurements=(Measurement("final", "graph-1", (us,) * 3, us, us, us),),
    )
    return store.record_trial(study, record, variant)


def smooth_us(problem: Problem, config: Config) -> float:
    """Times under which more columns want more warps."""
    warps, cols = config.values["num_warps"], problem.sizes["cols"]
    assert isinstance(warps, int)
    ideal = max(1.0, cols / 512)
    return problem.sizes["rows"] * cols / 1e4 * (1.0 + 0.1 * abs(math.log2(warps / ideal)))
