"""Renders configs of the shipped spaces and checks each in Triton's interpreter; run as a script, with cases on stdin.

A case is [operator, shape, dtype, options, config text], and if not all of them are to run the names of input families;
one JSON line comes back for each, in order.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

from tests.garbage import collect_less
from tuner.check_plan import CheckPlan
from tuner.checking import ReferenceCache, check, plan
from tuner.interpreter import repair_interpreter
from tuner.loading import load_source
from tuner.operators import get
from tuner.rendering import render
from tuner.space import load_space
from tuner.targets import target

# So few that a persistent program computes several rows or tiles even at the small shapes of the check.
FEW_PROGRAMS = 2


def run(case: tuple[Any, ...], folder: Path, cache: ReferenceCache) -> dict[str, Any]:
    """The outcome of one case: passed, ratio, the reason if not, and how many input families were checked."""
    operator_name, shape, dtype, options, text, *families = case
    operator = get(operator_name)
    problem = operator.problem(shape, dtype, options)
    space = load_space(operator_name).bind(problem, target("h200"))
    config = space.parse(text)
    variant = render(space.template(config), dict(config.switches), "3.9.0")
    path = folder / f"{variant.hash}.py"
    path.write_text(variant.source, encoding="utf-8")
    arguments = space.launch_arguments(config)
    if "NUM_PROGRAMS" in arguments:
        arguments["NUM_PROGRAMS"] = FEW_PROGRAMS
    checks = plan(
        operator, problem, space.tiles(config), space.max_tiles(config), space.precision(config), full_size=False
    )
    if families:
        checks = CheckPlan(tuple(c for c in checks.checks if c.family in families), checks.tiles)
    launch = partial(load_source(path).launch, **arguments)
    variation = 1 + zlib.crc32(text.encode())  # every config meets inputs of its own, as every trial does
    report = check(launch, operator, checks, "cpu", 0, cache, variation=variation)
    last = report.families[-1]
    return {
        "passed": report.passed,
        "ratio": max(family.ratio for family in report.families),
        "reason": f"{last.family} at {last.problem}: {last.reason}",
        "families": len(report.families),
    }


def main() -> None:
    collect_less()
    repair_interpreter()
    cache = ReferenceCache()
    with tempfile.TemporaryDirectory() as folder:
        for case in json.load(sys.stdin):
            sys.stdout.write(json.dumps(run(tuple(case), Path(folder), cache)) + "\n")


if __name__ == "__main__":
    main()
