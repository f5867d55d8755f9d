"""Renders configs of the shipped spaces and compiles each for a GPU that need not be there; cases on stdin.

A case is [operator, shape, dtype, options, config text, target]. One process compiles for one target, because
the driver is chosen once. One JSON line comes back for each case, in order.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tuner.compiling import CompileJob
from tuner.operators import get
from tuner.rendering import render
from tuner.space import load_space
from tuner.targets import target
from tuner.worker.messages import WorkerState


def run(
    case: tuple[str, dict[str, int], str, dict[str, Any], str, str], folder: Path, state: WorkerState
) -> dict[str, Any]:
    """What the compiler made of one case: kernels, and the most shared memory that one of them takes."""
    operator_name, shape, dtype, options, text, target_name = case
    device = target(target_name)
    problem = get(operator_name).problem(shape, dtype, options)
    space = load_space(operator_name).bind(problem, device)
    config = space.parse(text)
    variant = render(space.template(config), dict(config.switches), "3.9.0")
    path = folder / f"{variant.hash}.py"
    path.write_text(variant.source, encoding="utf-8")
    report = CompileJob(str(path), space.launch_arguments(config), problem, device, count_instructions=True)(state)
    return {
        "kernels": len(report.kernels),
        "grid": report.grid,
        "shared_bytes": max(kernel.shared_bytes for kernel in report.kernels),
        "limit": device.shared_bytes_per_block,
        "seconds": report.seconds,
    }


def main() -> None:
    state = WorkerState()
    with tempfile.TemporaryDirectory() as folder:
        for case in json.load(sys.stdin):
            sys.stdout.write(json.dumps(run(tuple(case), Path(folder), state)) + "\n")


if __name__ == "__main__":
    main()
