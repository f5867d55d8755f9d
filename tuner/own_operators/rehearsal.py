"""Tries a declared operator's functions on a few elements, so that a mistake in them is said before a study starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from tuner.errors import ProblemError
from tuner.naming import listed
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

if TYPE_CHECKING:
    from tuner.own_operators.declared import DeclaredOperator

_TILE = 4


def rehearse(operator: DeclaredOperator, problem: Problem) -> None:
    """Draw every family of a small problem like ``problem`` on the CPU; take reference and bound of the first.

    Raises:
        ProblemError: one of them fails (file, line), or gives what is no output of the operator.
    """
    tiles = {operator.reduced_axis: _TILE}
    (small, *_) = operator.check_problems(problem, tiles, {}, same_binary=False)
    profile = PrecisionProfile(problem.dtype, problem.dtype, dot="ieee" if problem.dtype == "fp32" else "16bit")
    for place, family in enumerate(operator.families(small)):
        inputs = operator.make_inputs(small, family, 0, "cpu")
        _look(operator, "draw", small, {n: tuple(t.shape) for n, t in inputs.items()}, operator.declared.inputs)
        if place == 0:
            _answers(operator, small, inputs, profile)


def _answers(
    operator: DeclaredOperator, small: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
) -> None:
    from tuner.own_operators.bound import answers, units
    from tuner.own_operators.functions import moved

    wide = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}
    named = {**wide, **small.settings}
    with moved(operator.declared.functions) as watched:
        answers(operator.declared, operator.call, "reference", (), named)
    silent = [name for name in operator.declared.functions if name not in watched.called]
    if silent:
        raise ProblemError(
            f"{operator.path}: {operator.declared.name}: functions gives {listed(silent)} an error, but reference() "
            f"does not call torch.{silent[0]}; write the definition out with it, or leave it out of functions"
        )
    asked = [("reference", ())]
    if operator.declared.bound is not None:
        asked.append(("bound", (units(profile, small.dtype),)))  # type: ignore[arg-type]
    for function, given in asked:
        found = answers(operator.declared, operator.call, function, given, named)
        for name, tensor in found.items():
            if not isinstance(tensor, torch.Tensor) or tensor.dtype is not torch.float64:
                kind = getattr(tensor, "dtype", type(tensor).__name__)
                raise ProblemError(
                    f"{operator.path}: {operator.declared.name}: {function}() gives {kind} for {name}; give a float64 "
                    "tensor (the inputs are float64)"
                )
        shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
        _look(operator, function, small, shapes, operator.declared.outputs)


def _look(
    operator: DeclaredOperator,
    function: str,
    small: Problem,
    shapes: Mapping[str, tuple[int, ...]],
    wanted: Mapping[str, object],
) -> None:
    from tuner.own_operators.shapes import shape_of

    expected = {name: shape_of(operator.declared.tensors[name], small.sizes) for name in wanted}
    if shapes != expected:
        raise ProblemError(
            f"{operator.path}: {operator.declared.name}: {function}() gives {dict(shapes)} for {small.label}, but the "
            f"file declares {expected}"
        )
