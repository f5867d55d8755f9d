"""Runs templates whose programs wait for one another in Triton's interpreter, without the wait; cases on stdin.

The interpreter runs one program after the other, so that what a program waits for is not there yet. Here each launch
is made twice with one scratch: the first leaves every word in it, the second reads them. A case is [operator, shape,
dtype, arguments of launch()]; one JSON line comes back for each, with the largest error over its bound.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from tests.mutation.rewriting import Change, rewrite
from tuner.comparison import Comparison, read_back
from tuner.interpreter import repair_interpreter
from tuner.loading import load_source
from tuner.operators import get
from tuner.operators.tensors import empty
from tuner.precision import PrecisionProfile
from tuner.shipped import variants_dir

_WITHOUT_WAITING = (
    Change("word = tl.inline_asm_elementwise(any_text, **any_more)", "word = tl.load(words + tl.arange(0, SPLITS))"),
    Change(
        "words = torch.zeros(any_shape, **any_more)",
        'words = launch.__dict__.setdefault("words", torch.zeros(any_shape, **any_more))',
    ),
)
_FAMILIES = ("randn", "masked")


def run(name: str, shape: dict[str, int], dtype: str, arguments: dict[str, Any], folder: Path) -> float:
    """The largest error over its bound on any of the families."""
    operator = get(name)
    problem = operator.problem(shape, dtype)
    source = (variants_dir() / name / "cooperative.py").read_text(encoding="utf-8")
    path = folder / f"{name}_{dtype}.py"
    path.write_text(rewrite(source, _WITHOUT_WAITING), encoding="utf-8")
    launch = load_source(path).launch
    worst = 0.0
    for family in _FAMILIES:
        inputs = operator.make_inputs(problem, family, 0, "cpu")
        ((output, spec),) = operator.output_specs(problem).items()
        given = {**inputs, output: empty(spec.shape, spec.dtype, "cpu", spec.strides).fill_(torch.nan)}
        launch.__dict__.clear()
        for _ in range(2):
            launch(**given, **arguments)
        profile = PrecisionProfile(dtype, dtype, tiles=2)
        reference = operator.reference(problem, inputs, profile).outputs[output]
        comparison = Comparison(output, reference, given[output], generic=family == "randn")
        read_back([], [comparison])
        worst = max(worst, comparison.verdict().ratio)
    return worst


def main() -> None:
    repair_interpreter()
    with tempfile.TemporaryDirectory() as folder:
        for case in json.load(sys.stdin):
            sys.stdout.write(json.dumps({"ratio": run(*case, Path(folder))}) + "\n")


if __name__ == "__main__":
    main()
