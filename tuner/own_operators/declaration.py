"""What a user's file writes to declare an operator. Frozen values, and functions of the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tuner.errors import ExpressionError, ProblemError
from tuner.expression import Expression
from tuner.naming import did_you_mean, listed
from tuner.numerics import FORMATS, TENSOR_DTYPES, sum_terms

if TYPE_CHECKING:  # torch is heavy; the annotations are for readers and type checkers
    import torch

    Answer = torch.Tensor | Mapping[str, torch.Tensor]

INTEGER_DTYPES = ("int32", "int64")
APPROXIMATED = ("cos", "erf", "exp", "exp2", "log", "log2", "rsqrt", "sigmoid", "silu", "sin", "sqrt", "tanh")
"""Functions of torch that ``OwnOperator.functions`` may give an error."""


@dataclass(frozen=True)
class Size:
    """One shape parameter. ``example`` is a usual value, for listings.

    ``fixed``: the check's small problems keep the tuned value, which is for sizes that cannot be chosen freely.
    """

    example: int
    description: str = ""
    minimum: int = 1
    multiple_of: int = 1
    fixed: bool = False


@dataclass(frozen=True)
class TensorSpec:
    """A contiguous tensor: each axis is a shape parameter's name, a number, or an expression of them (``"2 * n"``).

    ``dtype``: ``fp32``, ``fp16``, ``bf16``, ``int32`` or ``int64``; None is the problem's own.
    """

    shape: tuple[str | int, ...]
    dtype: str | None = None


@dataclass(frozen=True)
class Work:
    """What the definition costs at least: floating-point operations, bytes to and from memory, exponentials.

    ``bytes_moved`` None: every input read once and every output written once.
    """

    flops: float
    bytes_moved: int | None = None
    exponentials: float = 0.0


@dataclass(frozen=True)
class Units:
    """The roundings that a config declares, as relative errors, for a bound of the user's own.

    ``accumulator``: one rounding of a running sum; ``product``: one product as the declared dot takes it (0 where it is
    exact or rounded with the sum); ``input`` and ``output``: one rounding to those formats.
    """

    accumulator: float
    product: float
    input: float
    output: float

    def summed(self, terms: int) -> float:
        """What a sum of ``terms`` products may lose, relative to the sum of their magnitudes.

        2 c(n) u_a + product, where c(n) = min(n, 4 sqrt(n)) (Higham and Mary, SIAM J. Sci. Comput. 41, 2019); the
        factor 2 allows tensor cores that truncate.
        """
        return 2.0 * sum_terms(terms) * self.accumulator + self.product


@dataclass(frozen=True, kw_only=True)
class OwnOperator:
    """An operator of the user's own. What is not a value here is a function that gets tensors and numbers by name.

    ``sizes``: shape parameters (``Size``, or an example value). ``inputs`` and ``outputs``: tensors as ``launch`` names
    them (``TensorSpec``, or its shape). ``numbers``: further arguments of ``launch`` and ``reference``, with defaults.
    ``reduced``: the shape parameter that sums run over; the search space gives its tile. ``requires``: expressions that
    sizes must fulfil. ``independent``: a shape parameter along which nothing depends on anything else, the first axis
    of tensors that have it; large problems are then compared on a selection of it.

    ``reference(**inputs, **numbers)``: the output (or a dict of them) of float64 inputs, in float64, by the plainest
    algorithm; integers come as they are. ``work(sizes)``: a ``Work``. ``bound(units, **inputs, **numbers)``: by how
    much each element of each output may be off before it is rounded to the output's format, float64, as ``reference``
    answers; without it the bound follows from the declared precision (docs/own_operators.md). ``draw(inputs, sizes,
    generator)`` changes freshly drawn inputs in place (integers are 0): give it for integers. ``families``: further
    input families, each a function that changes standard normal inputs in place; ``without`` drops shipped ones.
    ``nonfinite``: what inputs with NaN and infinities give is defined, by ``reference``, and is checked too.
    ``functions``: relative errors that are accepted of functions that ``reference`` calls, by the names of
    ``APPROXIMATED``, as in ``{"tanh": 2.0**-10.5}``; what they do to the outputs is added to the bound.

    ``space``: the search space's YAML, beside the file.
    """

    name: str
    summary: str
    sizes: Mapping[str, Size | int]
    inputs: Mapping[str, TensorSpec | tuple[str | int, ...]]
    outputs: Mapping[str, TensorSpec | tuple[str | int, ...]]
    reduced: str
    reference: Callable[..., Answer]
    work: Callable[[Mapping[str, int]], Work]
    space: str
    dtypes: tuple[str, ...] = TENSOR_DTYPES
    numbers: Mapping[str, float] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    independent: str | None = None
    bound: Callable[..., Answer] | None = None
    draw: Callable[[dict[str, torch.Tensor], Mapping[str, int], torch.Generator], None] | None = None
    families: Mapping[str, Callable[[dict[str, torch.Tensor]], None]] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    nonfinite: bool = False
    functions: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ``ProblemError`` where it cannot be an operator."""
        if not isinstance(self.name, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,59}", self.name):
            raise ProblemError(f"OwnOperator: name must be lower case letters, digits and _, but got {self.name!r}")
        if not self.sizes or not self.inputs or not self.outputs:
            raise ProblemError(f"{self.name}: sizes, inputs and outputs must not be empty; name at least one of each")
        for what, names in (
            ("size", self.sizes),
            ("tensor", {**self.inputs, **self.outputs}),
            ("number", self.numbers),
        ):
            for name in names:
                if not str(name).isidentifier():
                    raise ProblemError(f"{self.name}: a {what} is called {name!r}; use a Python name")
        twice = [name for name in self.outputs if name in self.inputs]
        if twice:
            raise ProblemError(f"{self.name}: {twice[0]} is an input and an output; write into tensors of their own")
        for along in (self.reduced, *([self.independent] if self.independent else [])):
            if along not in self.sizes:
                raise ProblemError(f"{self.name}: {along!r} is no size; it has {listed(self.sizes)}")
        for name, spec in self.tensors.items():
            for axis in spec.shape:
                unknown = _unknown(axis, self.sizes)
                if unknown:
                    raise ProblemError(f"{self.name}: {name} has the axis {axis!r}: {unknown}")
            allowed = (*TENSOR_DTYPES, *(INTEGER_DTYPES if name in self.inputs else ()))
            if spec.dtype is not None and spec.dtype not in allowed:
                raise ProblemError(f"{self.name}: {name} has dtype {spec.dtype!r}; use one of {listed(allowed)}")
        strange = [dtype for dtype in self.dtypes if dtype not in TENSOR_DTYPES]
        if strange or not self.dtypes:
            raise ProblemError(f"{self.name}: dtypes must be of {listed(TENSOR_DTYPES)}, but got {self.dtypes!r}")
        for name, error in self.functions.items():
            if name not in APPROXIMATED:
                raise ProblemError(
                    f"{self.name}: functions names {name!r}{did_you_mean(name, APPROXIMATED)}; it takes "
                    f"{listed(APPROXIMATED)}"
                )
            if isinstance(error, bool) or not isinstance(error, int | float) or not 0.0 < error < 1.0:
                raise ProblemError(
                    f"{self.name}: functions: {name} must be a relative error above 0 and below 1, but got {error!r}"
                )
        if any(self._is_integer(spec) for spec in self.tensors.values()) and self.draw is None:
            raise ProblemError(f"{self.name}: has integer inputs, so it needs draw(inputs, sizes, generator)")

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        """Every tensor of ``launch``, inputs first."""
        given = {**self.inputs, **self.outputs}
        return {n: spec if isinstance(spec, TensorSpec) else TensorSpec(tuple(spec)) for n, spec in given.items()}

    @property
    def parameters(self) -> dict[str, Size]:
        """Every size as a ``Size``."""
        return {name: size if isinstance(size, Size) else Size(size) for name, size in self.sizes.items()}

    @staticmethod
    def _is_integer(spec: TensorSpec) -> bool:
        return spec.dtype in INTEGER_DTYPES


def _unknown(axis: str | int, sizes: Mapping[str, object]) -> str:
    """Why ``axis`` is no axis of these sizes; empty where it is one."""
    if isinstance(axis, int):
        return "" if axis >= 1 else "it must be at least 1"
    try:
        names = Expression.parse(axis).used
    except ExpressionError as error:
        return str(error)
    missing = [name for name in names if name not in sizes]
    return f"there is no size {missing[0]}{did_you_mean(missing[0], sizes)}; it has {listed(sizes)}" if missing else ""


def itemsize(dtype: str) -> int:
    """Bytes per element of a tensor's dtype, integers included."""
    return {"int32": 4, "int64": 8}[dtype] if dtype in INTEGER_DTYPES else FORMATS[dtype].itemsize
