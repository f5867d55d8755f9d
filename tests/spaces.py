"""A toy operator, its template and its search space, for the tests of search spaces."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.device import Device
from tuner.errors import ProblemError
from tuner.problem import Problem, Scalar

H200 = Device("NVIDIA H200", "cuda", 90, 32, 132, 141 << 30, 50 << 20, 232448, 233472, 65536, 65536, 1024, 2048)

TEMPLATE = '''\
"""A toy."""

import triton


@triton.jit
def kernel(x_ptr):
    pass


def launch(x, out, *, scale, FAST, IS_CAUSAL, BLOCK, PROGRAMS, num_warps):
    pass
'''

SPACE = """\
operator: toy
templates:
  tiled:
    source: tiled.py
    where: cols <= 65536
    switches:
      FAST: [true, false]
      IS_CAUSAL: causal
    parameters:
      BLOCK: [64, 128, 256]
      num_warps: [1, 2, 4]
      PER_SM: [1, 2]
    derived:
      PROGRAMS: sms * PER_SM
    constraints:
      - BLOCK <= next_power_of_2(cols)
      - BLOCK >= 64 * num_warps or IS_CAUSAL
    tiles: {cols: BLOCK}
    max_tiles: {rows: 1}
    precision:
      p: bf16
      dot: 16bit
      tiles: cdiv(cols, BLOCK) + 1
    plain:
      FAST: false
      BLOCK: min(256, next_power_of_2(cols))
      num_warps: 4
      PER_SM: 2
"""


@dataclass(frozen=True)
class Named:
    name: str


@dataclass(frozen=True)
class Toy:
    """Rows and columns, and whether they are causal."""

    name: str = "toy"
    shape_parameters: tuple[Named, ...] = (Named("rows"), Named("cols"))
    options: tuple[Named, ...] = (Named("causal"),)
    reduced_axis: str = "cols"

    def problem(self, shape: Mapping[str, int], dtype: str, options: Mapping[str, Scalar] | None = None) -> Problem:
        for name in ("rows", "cols"):
            if shape.get(name, 0) < 1:
                raise ProblemError(f"toy: {name} must be at least 1")
        if dtype not in ("bf16", "fp32"):
            raise ProblemError(f"toy: no dtype {dtype!r}")
        settings = {"causal": False, **(options or {})}
        return Problem("toy", (("rows", shape["rows"]), ("cols", shape["cols"])), dtype, tuple(settings.items()))


def lookup(name: str) -> Toy:
    """The toy operator, by its name."""
    if name == "toy":
        return Toy()
    close = difflib.get_close_matches(name, ["toy"])
    raise ProblemError(f"there is no operator {name!r}; {'did you mean toy?' if close else 'known are toy'}")


def write_space(folder: Path, text: str = SPACE, template: str = TEMPLATE) -> Path:
    """The space ``text`` as a file in ``folder``, beside its template ``tiled.py``."""
    (folder / "tiled.py").write_text(template)
    path = folder / "toy.yaml"
    path.write_text(text)
    return path
