"""What a declared operator's outputs should be, and the bound on what a kernel's rounding can do to each element.

With E the error before the output is rounded, y the reference, u and eta the roundoff and the floor of the output's
format: the bound is E + u (|y| + E) + eta. E is the declared ``bound``, or by default what a *backward stable* kernel
may lose: its result is the exact one of inputs that each differ by at most h relative, where

    h = 2 c(n) u_a + product + input

is what sums over the reduced axis (n elements; c(n) = min(n, 4 sqrt(n)), Higham and Mary, SIAM J. Sci. Comput. 41,
2019), the declared products and a declared rounding of the input do (Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 1.5, for the notion). How far the result moves is found by moving the inputs: by random
signs, and each input as a whole. The root mean square of the random moves estimates sqrt(sum (h x_j dy/dx_j)^2); LAMBDA
times it stands for the sum's tail, and the whole moves for sums of one sign. To that come 8 roundings of the result in
fp32, for what follows the sums (a root, a division, a product or two). To either E come the errors that the file
accepts of functions (``functions``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tuner.numerics import FORMATS, LAMBDA
from tuner.operators.reference import OutputReference, Reference
from tuner.operators.tensors import TORCH_DTYPES
from tuner.own_operators import functions
from tuner.own_operators.declaration import OwnOperator, Units
from tuner.precision import PrecisionProfile

# All of an output is compared up to this many elements, a selection along the independent axis beyond.
_WHOLE = 2**22
_FEWEST, _MOST = 16, 512
_MOVES = 6
_LAST_ROUNDINGS = 8
_RMS_TERMS = 256
_U = FORMATS["fp32"].u
_TF32 = FORMATS["tf32"].u

Tensors = Mapping[str, torch.Tensor]
Call = Callable[[str, Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], Any]
"""Calls a function of the user's file, and says where it failed."""


def units(profile: PrecisionProfile, out: str) -> Units:
    """The roundings that ``profile`` declares, for an output of format ``out``."""
    product = {"ieee": 0.0, "16bit": 0.0, "tf32": 2 * _TF32, "tf32x3": 3 * _TF32**2}[profile.dot]
    given = FORMATS[profile.input].u if profile.prescaled else 0.0
    return Units(FORMATS[profile.accumulator].u, product, given, FORMATS[out].u)


def answers(
    declared: OwnOperator, call: Call, function: str, given: Sequence[Any], named: Mapping[str, Any]
) -> Tensors:
    """What ``reference`` or ``bound`` gives, by output."""
    found = call(function, getattr(declared, function), tuple(given), named)
    if isinstance(found, torch.Tensor):
        found = {next(iter(declared.outputs)): found}
    return dict(found)


def reference(
    declared: OwnOperator,
    call: Call,
    numbers: Mapping[str, Any],
    terms: int,
    formats: Mapping[str, str],
    inputs: Tensors,
    profile: PrecisionProfile,
    *,
    selected: Sequence[int] | None = None,
) -> Reference:
    """Expected outputs and bounds of ``inputs``. ``terms``: the length of the reduced axis; ``formats``: by output.

    ``selected``: indices along the independent axis that are compared (None: everything).
    """
    index = None
    if selected is not None:
        device = next(iter(inputs.values())).device
        index = (torch.tensor(selected, device=device),)
        along = declared.independent
        inputs = {n: t[index[0]] if declared.tensors[n].shape[0] == along else t for n, t in inputs.items()}
    wide = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}

    def at(tensors: Tensors) -> Tensors:
        return answers(declared, call, "reference", (), {**tensors, **numbers})

    expected = at(wide)
    given = units(profile, profile.output)
    if declared.bound is not None:
        errors = answers(declared, call, "bound", (given,), {**wide, **numbers})
    else:
        errors = _moved(at, wide, expected, given.summed(terms) + given.input)
    accepted = functions.errors(lambda: at(wide), expected, declared.functions)
    outputs = {}
    for name, y in expected.items():
        out, error = FORMATS[formats[name]], errors[name].abs() + accepted[name]
        size, error = y.abs().nan_to_num(0.0, 0.0, 0.0), error.nan_to_num(0.0, 0.0, 0.0)
        bound = error + out.u * (size + error) + out.eta
        variance = (out.u * size) ** 2 / 3 + error**2 + out.eta**2 if terms >= _RMS_TERMS else None
        # What is beyond the format's largest number is infinite there.
        y = torch.where(y.to(TORCH_DTYPES[formats[name]]).isinf(), y.sign() * torch.inf, y)
        outputs[name] = OutputReference(y, bound, variance, index, bool(y.isnan().any()))
    return Reference(outputs)


def selection(rows: int, elements: int) -> list[int] | None:
    """Evenly spread indices of ``rows`` where an output has more ``elements`` than are compared whole."""
    if elements <= _WHOLE:
        return None
    count = min(rows, max(_FEWEST, min(_MOST, 2 * _WHOLE // max(1, elements // rows))))
    if count == 1:
        return [0]
    return sorted({i * (rows - 1) // (count - 1) for i in range(count)})


def _moved(at: Callable[[Tensors], Tensors], inputs: dict[str, torch.Tensor], expected: Tensors, h: float) -> Tensors:
    """By how much the outputs move where the inputs do by ``h``, and ``_LAST_ROUNDINGS`` of fp32."""
    floating = [name for name, t in inputs.items() if t.is_floating_point()]
    squares = {name: torch.zeros_like(y) for name, y in expected.items()}
    most = {name: torch.zeros_like(y) for name, y in expected.items()}
    generator = torch.Generator(next(iter(inputs.values())).device).manual_seed(1)
    for _ in range(_MOVES):
        moved = dict(inputs)
        for name in floating:
            signs = torch.empty_like(inputs[name]).bernoulli_(0.5, generator=generator).mul_(2.0).sub_(1.0)
            moved[name] = inputs[name] * (1.0 + h * signs)
        for name, y in at(moved).items():
            squares[name] += (y - expected[name]) ** 2 / _MOVES
    for name in floating:
        for output, y in at({**inputs, name: inputs[name] * (1.0 + h)}).items():
            most[output] = torch.maximum(most[output], (y - expected[output]).abs())
    return {
        name: LAMBDA * squares[name].sqrt() + len(floating) * most[name] + _LAST_ROUNDINGS * _U * y.abs()
        for name, y in expected.items()
    }
