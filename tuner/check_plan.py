"""What a config is checked on: problems and input families, in the order in which they run. A pure value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tuner.canonical import digest
from tuner.operators.base import Operator
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

_FURTHER_IF_MASKED = ("very_negative",)
_MASKS = ("causal", "window_left", "window_right")


@dataclass(frozen=True)
class PlannedCheck:
    """One problem, input family and the precision that the config promises there.

    ``repeat``: launch more than once, into outputs that held different values, and ask for the same bits. ``thorough``:
    on a GPU also with warm caches, as a CUDA graph and on another stream, and of a large output its invariant.
    ``full_size``: at the tuned shape, where a launch is dear: without the graph and the other stream, which show no
    more there than at a small shape. ``strided``: the tensors are views of another layout. ``backwards``: launched in
    the interpreter, once, with the last program first. ``far``: strides by tensor, as items, of a layout in whose
    place nothing fits (``tuner.far_tensors``).
    """

    problem: Problem
    family: str
    profile: PrecisionProfile
    repeat: bool = True
    thorough: bool = False
    strided: bool = False
    full_size: bool = False
    backwards: bool = False
    far: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def name(self) -> str:
        """The family, and how its tensors lie where that is not as usual."""
        kinds = {"strided": self.strided, "last program first": self.backwards, "2^31 elements apart": bool(self.far)}
        how = [kind for kind, so in kinds.items() if so]
        return f"{self.family} ({', '.join(how)})" if how else self.family


@dataclass(frozen=True)
class CheckPlan:
    """The checks of one config, cheapest first. A plan that checks nothing cannot be made.

    ``tiles``: elements per tile of the config, by shape parameter; with them the plan must prove that it would see
    the classical errors.
    """

    checks: tuple[PlannedCheck, ...]
    tiles: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError("a check plan must have at least one check")

    @cached_property
    def key(self) -> str:
        """A hash of what is checked."""
        return digest(self.as_json())

    def as_json(self) -> dict[str, object]:
        """Plain data that says what is checked."""
        rows = [[c.problem.as_json(), c.family, c.profile.as_json()] for c in self.checks]
        return {"checks": rows, "tiles": dict(self.tiles)}


def plan(
    operator: Operator,
    problem: Problem,
    tiles: Mapping[str, int],
    max_tiles: Mapping[str, int],
    profile: PrecisionProfile,
    *,
    full_size: bool,
) -> CheckPlan:
    """Every family on the main small problem, a few on the other small ones, and with ``full_size`` on ``problem``,
    else the first on what stands in for that.

    ``tiles`` and ``max_tiles``: as ``Operator.check_problems``. ``profile`` is the config's at ``problem``. With
    ``full_size`` (on a GPU) the small problems keep the launch's specialisation; without it (in the interpreter) they
    are as small as they can be.
    """
    small = operator.check_problems(problem, tiles, max_tiles, same_binary=full_size)
    stand_ins = () if full_size else operator.stand_ins(problem, tiles, max_tiles)
    checks: list[PlannedCheck] = []
    for place, at in enumerate(small):
        families = operator.families(at)
        if place > 0:
            chosen = operator.further_families or families
            # Tiles without a visible key meet logits below any sentinel.
            masked = any(at.settings.get(name) not in (None, False) for name in _MASKS)
            chosen += _FURTHER_IF_MASKED if masked else ()
            families = tuple(f for f in families if f in chosen)
        there = profile_at(operator, at, problem, tiles, profile)
        for family in families:
            # The interpreter runs one program after the other, so one repetition shows what many would.
            first = place == 0 and family == families[0]
            checks.append(PlannedCheck(at, family, there, repeat=full_size or first, thorough=first))
        # The first shape has one batch, and in the interpreter one head; the last of the stand-ins has several.
        several = place == len(small) - 1 and at.sizes.get("batch", 1) > 1 and not stand_ins
        if (place == 0 or several) and operator.strides(at):
            checks.append(PlannedCheck(at, families[0], there, repeat=False, strided=True))
    for at in stand_ins:
        there, crowded = profile_at(operator, at, problem, tiles, profile), at == stand_ins[-1]
        check = PlannedCheck(at, operator.families(at)[0], there, repeat=False)
        checks.append(replace(check, strided=crowded and bool(operator.strides(at)), backwards=crowded))
        far = operator.far_strides(problem, at) if crowded else {}
        if far:
            checks.append(replace(check, far=tuple(far.items())))
    if full_size:
        chosen = operator.full_size_families or operator.families(problem)
        for family in chosen:
            first = family == chosen[0]
            checks.append(PlannedCheck(problem, family, profile, repeat=first, thorough=first, full_size=True))
    return CheckPlan(tuple(dict.fromkeys(checks)), dict(tiles))


def profile_at(
    operator: Operator, small: Problem, tuned: Problem, tiles: Mapping[str, int], profile: PrecisionProfile
) -> PrecisionProfile:
    """``profile`` with the number of tiles that the small problem has; splits beyond the tuned problem's tiles stay."""
    axis = operator.reduced_axis
    if axis not in tiles:
        return profile
    tile = max(1, tiles[axis])
    tuned_tiles, small_tiles = -(-tuned.sizes[axis] // tile), -(-small.sizes[axis] // tile)
    return replace(profile, tiles=small_tiles + max(0, profile.tiles - tuned_tiles))
