"""Whether a plan of inputs can tell a wrong kernel from a right one, found out without a kernel.

Each classical error of online softmax is computed in float64 on the plan's own inputs. It must be beyond the bound on
at least one element of at least one family; else a kernel with that error could pass, and the plan is refused.
"""

from __future__ import annotations

import torch

from tuner.check_plan import CheckPlan, PlannedCheck
from tuner.errors import CheckError
from tuner.operators.base import Operator
from tuner.operators.reference import OutputReference
from tuner.reference_cache import ReferenceCache

_LARGEST = 2**24  # exponentials (or what else the reference computes) of a problem on which errors are computed


def require_power(operator: Operator, plan: CheckPlan, device: str, seed: int, cache: ReferenceCache) -> None:
    """Refuse ``plan`` where one of the classical errors would pass it. Computed once for each plan and seed.

    Raises:
        CheckError: a wrong answer would pass; the message names it.
    """
    key = ("power", plan.key, device, seed)
    hidden = cache.once(key, lambda: hidden_errors(operator, plan, device, seed, cache))
    if hidden:
        problem, families = plan.checks[0].problem, dict.fromkeys(c.family for c in plan.checks)
        raise CheckError(
            f"{problem.label}: the check has no power: a kernel with this error would pass it: {'; '.join(hidden)}. "
            f"Declare a higher precision than {_declared(plan)}, or add inputs that show it to {', '.join(families)}"
        )


def hidden_errors(
    operator: Operator, plan: CheckPlan, device: str, seed: int, cache: ReferenceCache
) -> tuple[str, ...]:
    """The classical errors that no family of ``plan`` shows: none where the plan has the power that it needs."""
    # The tuned problem's own size would take long, and the first problems show what it can.
    small = [p for p in plan.checks if operator.effort(p.problem) <= _LARGEST] or list(plan.checks[:1])
    left: dict[str, None] = {}
    for problem in dict.fromkeys(planned.problem for planned in small):
        left |= dict.fromkeys(operator.classical_errors(problem, plan.tiles))
    for planned in small:
        applicable = operator.classical_errors(planned.problem, plan.tiles)
        for error in [e for e in left if e in applicable]:
            if _shows(operator, planned, error, plan, device, seed, cache):
                del left[error]
        if not left:
            break
    return tuple(left)


def _shows(
    operator: Operator,
    planned: PlannedCheck,
    error: str,
    plan: CheckPlan,
    device: str,
    seed: int,
    cache: ReferenceCache,
) -> bool:
    """Whether the answer with ``error`` is beyond the bound anywhere."""
    inputs = cache.inputs(operator, planned.problem, planned.family, seed, device)
    reference = cache.reference(operator, planned.problem, inputs, planned.family, seed, planned.profile, device)
    answers = operator.wrong_answer(planned.problem, inputs, error, plan.tiles)
    return any(_beyond(reference.outputs[name], place, got) for name, (place, got) in answers.items())


def _beyond(reference: OutputReference, place: tuple[int | slice, ...], got: torch.Tensor) -> bool:
    """Whether ``got``, which belongs at ``output[place]``, is wrong at an element that ``reference`` covers."""
    expected, bound = reference.expected, reference.bound
    if reference.index is None:
        expected, bound = expected[place], bound[place]
    else:
        rows = reference.index[len(place)]
        here = torch.ones_like(rows, dtype=torch.bool)
        for axis, at in zip(reference.index, place, strict=False):
            here &= axis == at
        expected, bound, got = expected[here], bound[here], got[rows[here]]
    same = (got == expected) | (got.isnan() & expected.isnan())
    return bool((~same & ~((got - expected).abs() <= bound)).any())


def _declared(plan: CheckPlan) -> str:
    return ", ".join(f"{name}={value}" for name, value in plan.checks[0].profile.as_json().items())
