"""Holds what a config computes to a reference function that the user names.

The reference takes the kernel's arguments by name, floating tensors as float64 copies, and returns the expected
contents by argument name. It is right by definition; how far a config may be from it follows from the formats and from
how much the result depends on its inputs:

    |got - expected| <= (2 u_out + ARITHMETIC) |expected| + SENSITIVITY * s

``u_out`` is the unit roundoff of the output's format: one rounding, and one more of headroom. ``ARITHMETIC`` is what
sums and functions in fp32 may lose, relative to the result. ``s`` is by how much the reference itself moves, as the
root mean square of ``DRAWS`` runs, when every input is moved by up to one unit roundoff of the coarsest format that the
arithmetic uses: inputs' formats, and tf32 where fp32 matrices are multiplied and nothing says ``ieee``. Where terms
cancel, ``s`` grows as the rounding errors of a stable computation do (Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., 1.6: forward error from condition and backward error). A few draws can come out small for an
element by chance, so ``s`` is at least what its neighbours say: ``FLOOR`` of its root mean square along a line of the
output, the line of each axis on which that is the least; of a vector, ``VECTOR_FLOOR`` of that over all of it. What is
no float must be equal.

A pure output, which the reference does not read, holds NaN before the launch that is looked at: what a config leaves
out does not pass because an earlier launch wrote it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tuner.autotuning.arguments import base_tensor, by_name
from tuner.autotuning.copies import Call
from tuner.autotuning.kernel_source import KernelSource
from tuner.autotuning.written import keyword_values, mentions
from tuner.canonical import digest
from tuner.comparison import Comparison, Verdict, read_back
from tuner.errors import AutotuneError
from tuner.naming import did_you_mean, listed
from tuner.numerics import FORMATS
from tuner.operators.reference import OutputReference

ARITHMETIC = 2.0**-15
SENSITIVITY = 8.0
FLOOR, VECTOR_FLOOR = 0.5, 0.1
DRAWS = 8

Tolerance = tuple[float, float]
"""Relative and absolute, in the place of the rule: |got - expected| <= relative * |expected| + absolute."""

_UNITS = {torch.float32: FORMATS["fp32"].u, torch.float16: FORMATS["fp16"].u, torch.bfloat16: FORMATS["bf16"].u}


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next larger number; 0 for what is no float."""
    return _UNITS.get(dtype, torch.finfo(dtype).eps / 2.0 if dtype.is_floating_point else 0.0)


def promise(reference: Callable[..., Any] | None, tolerance: Tolerance | None) -> str:
    """A hash of what configs are held to; empty where there is no reference."""
    if reference is None:
        return ""
    try:
        text = inspect.getsource(reference)
    except (OSError, TypeError):
        text = f"{getattr(reference, '__module__', '')}.{getattr(reference, '__qualname__', repr(type(reference)))}"
    return digest([text, list(tolerance or (ARITHMETIC, SENSITIVITY, FLOOR, VECTOR_FLOOR, DRAWS))])


class Referee:
    """Knows, for one call, what its tensors must hold afterwards.

    Raises ``AutotuneError`` where the reference cannot be used.
    """

    def __init__(
        self,
        reference: Callable[..., Any],
        tolerance: Tolerance | None,
        source: KernelSource,
        arg_names: Sequence[str],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._reference, self._arg_names = reference, arg_names
        named = by_name(arg_names, args, kwargs)
        expected = self._expected(named)
        self.pure = self._pure_outputs(named, expected)
        self._references = {}
        spread = {} if tolerance is not None else self._spread(named, expected, _coarsest(source, named))
        for name, want in expected.items():
            bound = _bound(want, base_tensor(named[name]).dtype, spread.get(name), tolerance)
            wide = want.double()
            self._references[name] = OutputReference(wide, bound, has_nan=bool(wide.isnan().any()))

    def prepare(self, call: Call) -> None:
        """Fill the pure outputs of ``call`` with what no config leaves there by chance."""
        named = call.named(self._arg_names)
        for name in self.pure:
            tensor = base_tensor(named[name])
            if tensor.dtype.is_floating_point:
                tensor.fill_(math.nan)

    def verdicts(self, call: Call) -> list[Verdict]:
        """What a launch with the arguments of ``call`` left, output by output."""
        named = call.named(self._arg_names)
        comparisons = [
            Comparison(name, reference, base_tensor(named[name]), generic=False)
            for name, reference in self._references.items()
        ]
        read_back([], comparisons)
        return [comparison.verdict() for comparison in comparisons]

    def _expected(self, named: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        found = self._call({name: _wide(value) for name, value in named.items()})
        if not isinstance(found, Mapping) or not found:
            raise AutotuneError(
                f"the reference must return a dictionary from argument name to expected tensor, but returned "
                f"{type(found).__name__}"
            )
        for name, want in found.items():
            tensor = base_tensor(named.get(name))
            if tensor is None:
                tensors = [n for n, v in named.items() if base_tensor(v) is not None]
                raise AutotuneError(
                    f"the reference returned {name!r}, which is no tensor argument{did_you_mean(name, tensors)}; "
                    f"the kernel has {listed(tensors)}"
                )
            if tuple(want.shape) != tuple(tensor.shape):
                raise AutotuneError(
                    f"the reference returned {name} of shape {tuple(want.shape)}, but the argument has "
                    f"{tuple(tensor.shape)}"
                )
        return dict(found)

    def _call(self, named: Mapping[str, Any]) -> Any:
        parameters = inspect.signature(self._reference).parameters.values()
        everything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
        takes = named if everything else {p.name: named[p.name] for p in parameters if p.name in named}
        try:
            return self._reference(**takes)
        except TypeError as error:
            raise AutotuneError(
                f"the reference cannot be called with the kernel's arguments by name: {error}"
            ) from error

    def _pure_outputs(self, named: Mapping[str, Any], expected: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
        """Those of ``expected`` whose contents before the launch make no difference to the reference.

        One that shares its memory with another argument may be read through that.
        """
        pure = []
        tensors = [base_tensor(value) for value in named.values() if base_tensor(value) is not None]
        places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
        for name in expected:
            wide = {n: _wide(v) for n, v in named.items()}
            shared = places.count(base_tensor(named[name]).untyped_storage().data_ptr()) > 1
            if shared or not wide[name].dtype.is_floating_point:
                continue
            wide[name].fill_(math.nan)
            again = self._call(wide)
            if all(torch.equal(again[n].isnan(), want.isnan()) for n, want in expected.items()):
                pure.append(name)
        return tuple(pure)

    def _spread(
        self, named: Mapping[str, Any], expected: Mapping[str, torch.Tensor], unit: float
    ) -> dict[str, torch.Tensor]:
        """Root mean square, element by element, of how far moved inputs move the result."""
        total = {name: torch.zeros_like(want, dtype=torch.float64) for name, want in expected.items()}
        for draw in range(DRAWS):
            generators: dict[str, torch.Generator] = {}
            moved = {name: _moved(_wide(value), unit, draw, generators) for name, value in named.items()}
            found = self._call(moved)
            for name, want in expected.items():
                difference = (found[name].double() - want.double()).square()
                total[name] += torch.where(torch.isfinite(difference), difference, 0.0)
        return {name: (summed / DRAWS).sqrt() for name, summed in total.items()}


def _bound(
    want: torch.Tensor, dtype: torch.dtype, spread: torch.Tensor | None, tolerance: Tolerance | None
) -> torch.Tensor:
    size = torch.where(torch.isfinite(want.double()), want.double().abs(), 0.0)
    if not dtype.is_floating_point:
        return torch.full_like(size, torch.finfo(torch.float64).tiny)
    if tolerance is not None:
        return tolerance[0] * size + tolerance[1]
    assert spread is not None
    spread = spread.maximum(_floor(spread))
    unit = unit_roundoff(dtype)
    return (2.0 * unit + ARITHMETIC) * size + SENSITIVITY * spread + torch.finfo(dtype).tiny


def _floor(spread: torch.Tensor) -> torch.Tensor:
    """The least that an element's spread is taken to be, from those beside it."""
    squares = spread.square()
    if spread.dim() < 2:
        return VECTOR_FLOOR * squares.mean().sqrt()
    along = [squares.mean(dim=axis, keepdim=True).expand_as(spread) for axis in range(spread.dim())]
    return FLOOR * torch.stack(along).amin(dim=0).sqrt()


def _coarsest(source: KernelSource, named: Mapping[str, Any]) -> float:
    dtypes = [base_tensor(value).dtype for value in named.values() if base_tensor(value) is not None]
    units = [unit_roundoff(dtype) for dtype in dtypes if dtype.is_floating_point and dtype.itemsize > 1]
    if (
        torch.float32 in dtypes
        and mentions(source, "dot")
        and keyword_values(source, "dot", "input_precision") != {"ieee"}
    ):
        units.append(FORMATS["tf32"].u)
    return max(units, default=0.0)


def _wide(value: Any) -> Any:
    """A copy for the reference: floats in float64; a descriptor's tensor in the place of the descriptor."""
    tensor = base_tensor(value)
    if not isinstance(tensor, torch.Tensor):
        return value
    return (
        tensor.detach().double()
        if tensor.dtype.is_floating_point and tensor.dtype != torch.float64
        else tensor.detach().clone()
    )


def _moved(value: Any, unit: float, draw: int, generators: dict[str, torch.Generator]) -> Any:
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
        return value
    device = str(value.device)
    generator = generators.setdefault(device, torch.Generator(device).manual_seed(draw))
    change = torch.rand(value.shape, generator=generator, dtype=torch.float64, device=device) * 2.0 - 1.0
    return value * (1.0 + unit * change)
