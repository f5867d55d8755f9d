"""Why a kernel is wrong, as far as its pattern says: what failed, and what becomes of it on other tiles and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tuner.check_plan import CheckPlan, PlannedCheck, profile_at
from tuner.checking import check
from tuner.diagnosis import SMALL_EVERYWHERE
from tuner.numerics import FP8
from tuner.operators.base import Operator
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache
from tuner.trial import FamilyReport

_COUNTS = (1, 2, 4, 8)
_GROWTH = 2.0
_GENERIC = "randn"
_LEAST_PADDED = 8  # a tile of fewer elements has too few lanes past the end to compare

_BY_REASON = (
    ("written before", "a store without its mask, or with wrong strides"),
    ("written after", "a store without its mask, or with wrong strides"),
    ("written between", "a store that takes rows to be contiguous; use the tensor's strides"),
    ("by the replay of a CUDA graph", "work on another stream than the current one, or done once on the host"),
    ("by a launch on a stream of its own", "work on another stream than the current one"),
    ("never written", "a grid or a store's mask that leaves elements out"),
    ("the replay of a CUDA graph gave other bits", "something that the host reads from the inputs before it launches"),
    (
        "with the last program first, gave other bits",
        "a program that reads what another has written, scratch that is read before it is written, or a result kept by "
        "address",
    ),
    ("at another address gave other bits", "scratch that is read before it is written, or a result kept by address"),
    ("gave other bits", "a race: memory is read or written in no order; with atomics, declare `atomics: true`"),
    ("was changed", "the kernel writes into its input, or past the end of an output"),
    ("device or stream current", "launch() changes the current device or stream; put back what it found"),
    ("root-mean-square", "sums in lower precision than declared (accumulator, weights or row sum)"),
    ("every element is zero", "nothing is written, or everything is masked"),
)
_NAN_BY_FAMILY = {
    "masked": "-inf minus -inf, where a tile or a row is masked whole",
    "nonfinite": "a NaN or infinity that spreads where it should not, or is lost where it should spread",
    "falling": "alpha overflows: the running maximum must never fall (m_new = max(m, max(x)))",
    "falling_far": "alpha overflows: the running maximum must never fall (m_new = max(m, max(x)))",
    "very_negative": "a finite stand-in for -inf, or a maximum that starts above the logits",
    "lowest": "a finite stand-in for -inf, or a product that overflows on the lowest finite numbers",
    "huge": "an exponential without the maximum subtracted",
}


@dataclass(frozen=True)
class _Outcome:
    passed: bool
    ratio: float


@dataclass(frozen=True)
class Suspect:
    """A launch that failed ``failed``, one of ``plan``'s checks, and what can be tried on it."""

    launch: Callable[..., None]
    operator: Operator
    plan: CheckPlan
    max_tiles: Mapping[str, int]
    failed: FamilyReport
    device: str
    seed: int

    def likely_cause(self) -> str:
        """One line; empty where the pattern says nothing."""
        pads = self._from_pads()
        said = [*self._from_reason(bool(pads)), *(pads or self._from_tiles()), *self._from_dtypes()]
        return "; ".join(dict.fromkeys(said))

    @property
    def _planned(self) -> PlannedCheck | None:
        wanted = (self.failed.family, self.failed.problem)
        return next((c for c in self.plan.checks if (c.name, c.problem.label) == wanted), None)

    def _from_reason(self, pads: bool) -> list[str]:
        reason, family = self.failed.reason, self.failed.family
        said = []
        if "last program first" in family:
            said.append("many programs: fewer are launched than there is work, or one reads what another has written")
        if "strided" in family:
            said.append("right on contiguous tensors: strides are not used, or one tensor's for another's")
        if "NaN" in reason or "infinite" in reason:
            said.append(f"NaN rows: {_NAN_BY_FAMILY.get(family, '0/0, inf - inf, or a read past the end of an input')}")
        if "constant factor" in reason:
            said.append(f"a constant factor: {reason.partition('constant factor ')[2].partition(';')[0]}")
        if SMALL_EVERYWHERE in reason and not pads:  # pads of 0 make every element a little too small
            said.append(self.operator.coarse_arithmetic)
        return said + [cause for pattern, cause in _BY_REASON if pattern in reason][:1]

    def _from_pads(self) -> list[str]:
        """Whether lanes past the end of the reduced axis count as elements: the more of them, the larger the error.

        A tail that is lost is the other way round. Generic inputs show it best, where those have the axis.
        """
        planned, axis = self._planned, self.operator.reduced_axis
        tile = self.plan.tiles.get(axis, 0)
        if planned is None or tile < _LEAST_PADDED or "written" in self.failed.reason:
            return []
        families = self.operator.families(planned.problem)
        generic = replace(planned, family=_GENERIC) if _GENERIC in families else planned
        full = tile * min(2, self.max_tiles.get(axis, 2))
        most = tile // 2 - 1  # a block of a whole row is at least half full
        whole, few, many = (self._try(self._resized(generic, axis, full - pads)) for pads in (0, 1, most))
        if whole is None or few is None or many is None or not whole.passed or many.passed:
            return []
        if not many.ratio > _GROWTH * few.ratio:
            return []
        return [
            f"pads: right where {axis} fills its tiles, and the more lanes lie past its end the more wrong "
            f"(error/bound {few.ratio:.3g} with 1 of them, {many.ratio:.3g} with {most}): what is loaded there enters "
            "the row's maximum or sum; load -inf there, or mask it"
        ]

    def _from_tiles(self) -> list[str]:
        """What the same inputs do with one tile, with whole tiles, and with more of them."""
        planned, axis = self._planned, self.operator.reduced_axis
        tile = self.plan.tiles.get(axis, 0)
        if planned is None or not tile or axis in self.max_tiles or "written" in self.failed.reason:
            return []
        whole = {count: self._try(self._resized(planned, axis, count * tile)) for count in _COUNTS}
        one, many = whole[1], [w for count, w in whole.items() if count > 1 and w is not None]
        if one is None or not many:
            return []
        if all(w.passed for w in (one, *many)):
            ragged = self._try(self._resized(planned, axis, 2 * tile + max(1, tile // 3)))
            if ragged is not None and not ragged.passed:
                return ["last tile only: right on whole tiles, wrong where the last one is cut off (its mask)"]
            return []
        if one.passed and not any(w.passed for w in many):
            growth = self._drift(many)
            return [f"right with one tile, wrong with more: what is carried from tile to tile{growth}"]
        if one.passed:
            first = next(count for count in _COUNTS if (w := whole[count]) is not None and not w.passed)
            return [f"drift that grows with the tile count: wrong from {first} tiles on{self._drift(many)}"]
        return [f"wrong with a single tile already: not what is carried between tiles{self._drift([one, *many])}"]

    @staticmethod
    def _drift(outcomes: list[_Outcome]) -> str:
        low, high = outcomes[0].ratio, outcomes[-1].ratio
        if low > 0.0 and high < float("inf") and high > _GROWTH * low:
            return f" (the error grows with the tile count: {low:.3g} times its bound, then {high:.3g})"
        return ""

    def _from_dtypes(self) -> list[str]:
        planned = self._planned
        if planned is None or "written" in self.failed.reason:
            return []
        here = planned.problem.dtype
        if here == FP8:
            return []  # other dtypes are launched without scales
        others = [dtype for dtype in self.operator.dtypes if dtype not in (here, FP8)]
        outcomes = {dtype: self._try(self._in_dtype(planned, dtype)) for dtype in others}
        right = [dtype for dtype, outcome in outcomes.items() if outcome is not None and outcome.passed]
        if right and len(right) == len([o for o in outcomes.values() if o is not None]):
            return [f"one dtype only: right in {' and '.join(right)}, wrong in {here} (a cast, or declared precision)"]
        return []

    def _resized(self, planned: PlannedCheck, axis: str, size: int) -> PlannedCheck:
        sizes = {**planned.problem.sizes, axis: size}
        if "row_stride" in sizes:
            sizes["row_stride"] = size
        problem = self.operator.problem(sizes, planned.problem.dtype, planned.problem.settings)
        profile = profile_at(self.operator, problem, planned.problem, self.plan.tiles, planned.profile)
        return replace(planned, problem=problem, profile=profile, repeat=False, thorough=False)

    def _in_dtype(self, planned: PlannedCheck, dtype: str) -> PlannedCheck:
        problem = self.operator.problem(planned.problem.sizes, dtype, planned.problem.settings)
        return replace(
            planned, problem=problem, profile=_in_dtype(planned.profile, dtype), repeat=False, thorough=False
        )

    def _try(self, planned: PlannedCheck) -> _Outcome | None:
        """What the launch makes of other inputs; None where it cannot take them."""
        if planned.family not in self.operator.families(planned.problem):
            return None
        try:
            report = check(self.launch, self.operator, CheckPlan((planned,)), self.device, self.seed, ReferenceCache())
        except Exception:  # a stranger's launch, on inputs that it may not be made for: whatever it raises says so
            return None
        return _Outcome(report.passed, report.worst_ratio)


def _in_dtype(profile: PrecisionProfile, dtype: str) -> PrecisionProfile:
    p = dtype if profile.p == profile.input else profile.p
    dot = "16bit" if dtype != "fp32" else "ieee" if profile.dot == "16bit" else profile.dot
    return replace(profile, input=dtype, output=dtype, p=p, dot=dot)


def likely_cause(
    launch: Callable[..., None],
    operator: Operator,
    plan: CheckPlan,
    max_tiles: Mapping[str, int],
    failed: FamilyReport,
    device: str,
    seed: int,
) -> str:
    """Why ``launch`` failed ``failed``, one of the checks of ``plan``: one line, empty where nothing is known.

    Launches it on further small problems. ``max_tiles``: how many tiles it can handle, by shape parameter.
    """
    return Suspect(launch, operator, plan, max_tiles, failed, device, seed).likely_cause()
