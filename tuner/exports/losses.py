"""What a rule for untuned shapes costs, by leave-one-out on the tuned ones, from stored times only.

Each tuned shape is taken out of the table once. What the rule gives for it then is looked up among the shape's own
stored times: the loss is by how much that is slower than the shape's winner. Nothing is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from tuner.exports.entry import Entry, LeftOut

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

FEWEST = 3
"""Tuned shapes of one group below which nothing can be left out."""

_STEPS = (0.25, 1.0, 4.0)
_SWEEPS = 2

Pick = Callable[[Entry, Sequence[Entry]], "Entry | None"]
"""From a shape that is taken out and the group's other entries to the entry whose config the rule takes."""


class _HasEntry(Protocol):
    @property
    def entry(self) -> Entry: ...


Placed = TypeVar("Placed", bound=_HasEntry)


@dataclass(frozen=True)
class Loss:
    """What ``rule`` costs. Fractions: 0.03 is 3 % slower than the shape's own winner.

    Of ``shapes`` that were left out, ``measured`` have a stored time for what the rule gives, ``unmeasured`` have none,
    and ``unanswered`` get no config at all (the consumer then does what it does without a table).
    """

    rule: str
    shapes: int
    measured: int
    unmeasured: int
    unanswered: int
    mean: float | None
    median: float | None
    worst: float | None

    @property
    def text(self) -> str:
        """One line for people."""
        if not self.shapes:
            return f"{self.rule}: expected loss unknown (fewer than {FEWEST} tuned shapes of a kind)"
        rest = [f"{self.unmeasured} without a stored time"] if self.unmeasured else []
        rest += [f"{self.unanswered} without an answer"] if self.unanswered else []
        tail = f"; {', '.join(rest)}" if rest else ""
        if self.mean is None or self.median is None or self.worst is None:
            return f"{self.rule}: expected loss unknown, {self.shapes} shapes left out in turn{tail}"
        return (
            f"{self.rule}: expected loss {self.mean:.1%} (median {self.median:.1%}, worst {self.worst:.1%}), "
            f"{self.measured} of {self.shapes} shapes left out in turn{tail}"
        )


def leave_one_out(rule: str, entries: Sequence[Entry], pick: Pick) -> Loss:
    """The loss of ``pick`` over all groups of at least ``FEWEST`` entries."""
    found: list[float | None] = []
    unanswered = 0
    for group in groups(entries):
        for place, held_out in enumerate(group):
            chosen = pick(held_out, [*group[:place], *group[place + 1 :]])
            if chosen is None:
                unanswered += 1
            else:
                found.append(chosen.loss_at(held_out))
    return _loss(rule, found, unanswered)


def groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The entries that differ in shape alone, where there are at least ``FEWEST``."""
    by_group: dict[object, list[Entry]] = {}
    for entry in entries:
        by_group.setdefault(entry.group, []).append(entry)
    return [group for group in by_group.values() if len(group) >= FEWEST]


def loss_elsewhere(entry: Entry, others: Sequence[Entry]) -> float:
    """The mean loss of its config at the others; a time that is not stored counts as the plain config's."""
    total = 0.0
    for other in others:
        if other is not entry and other.group == entry.group:
            loss = entry.loss_at(other)
            plain = other.winner.record.plain_us or 2.0 * other.us
            total += loss if loss is not None else max(0.0, plain / other.us - 1.0)
    return total


def one_a_place(
    items: Iterable[Placed], place: Callable[[Placed], Hashable], why: Callable[[Placed], str]
) -> tuple[list[Placed], list[LeftOut]]:
    """Of the items that a consumer gives one ``place``, the one that loses least at the others' shapes.

    A measured one goes before an estimated one. ``why`` says, of the one that is kept, why the others are left out.
    """
    by_place: dict[Hashable, list[Placed]] = {}
    for item in items:
        by_place.setdefault(place(item), []).append(item)
    kept: list[Placed] = []
    left_out: list[LeftOut] = []
    for alike in by_place.values():
        entries = [item.entry for item in alike]
        best = min(alike, key=lambda item: (item.entry.winner.record.estimated, loss_elsewhere(item.entry, entries)))
        kept.append(best)
        for item in alike:
            if item is not best:
                left_out.append(LeftOut(f"{item.entry.problem.label} on {item.entry.device.name}", why(best)))
    return kept, left_out


@dataclass(frozen=True)
class NearestRule:
    """The nearest tuned shape: the least sum over ``axes`` of weight * |log2(size / tuned size)|, fitted weights."""

    weights: Mapping[str, float]
    loss: Loss

    @property
    def text(self) -> str:
        """The rule in words."""
        terms = " + ".join(f"{weight:g} * |log2 {axis}|" for axis, weight in self.weights.items())
        return f"nearest by {terms}"


def fit_nearest(operator: str, axes: Sequence[str], entries: Sequence[Entry]) -> NearestRule:
    """Fits one weight an axis for the entries of ``operator``.

    The weights are those with the least mean loss. They are judged with the shape left out of the fit as well as of the
    table, so that the loss is that of a shape that the fit has not seen.
    """
    own = [entry for entry in entries if entry.problem.operator == operator]
    tables = [_Pairs.of(group, axes) for group in groups(own)]
    plain = dict.fromkeys(axes, 1.0)
    rule = f"{operator}, nearest tuned shape"
    if not tables:
        return NearestRule(plain, _loss(rule, [], 0))
    found: list[float | None] = []
    unanswered = 0
    for table in tables:
        for row in range(table.size):
            weights = _fit(tables, axes, without=(table, row))
            answer = table.answers(weights)[row]
            if answer < 0:
                unanswered += 1
            else:
                loss = float(table.losses[row, answer])
                found.append(None if math.isnan(loss) else loss)
    weights = _fit(tables, axes)
    return NearestRule(dict(zip(axes, weights, strict=True)), _loss(rule, found, unanswered))


@dataclass(frozen=True, eq=False)
class _Pairs:
    """One group: row p, column q is "q's config at p's shape". ``losses`` is NaN where no time is stored.

    ``distances`` is [axis, p, q]; ``usable`` says where q's config applies; ``without`` is p's loss without the rule.
    """

    size: int
    distances: Array
    losses: Array
    usable: npt.NDArray[np.bool_]
    without: Array

    @classmethod
    def of(cls, group: Sequence[Entry], axes: Sequence[str]) -> _Pairs:
        import numpy as np

        size = len(group)
        logs = np.array([[math.log2(entry.problem.sizes[axis]) for entry in group] for axis in axes])
        losses = np.full((size, size), np.nan)
        usable = np.zeros((size, size), dtype=bool)
        for p, there in enumerate(group):
            for q, entry in enumerate(group):
                if p != q and entry.program_at(there) is not None:
                    usable[p, q] = True
                    loss = entry.loss_at(there)
                    losses[p, q] = np.nan if loss is None else loss
        plain = [entry.winner.record.plain_us or entry.us for entry in group]
        without = np.array([max(0.0, us / entry.us - 1.0) for us, entry in zip(plain, group, strict=True)])
        return cls(size, np.abs(logs[:, :, None] - logs[:, None, :]), losses, usable, without)

    def answers(self, weights: Sequence[float]) -> npt.NDArray[np.int64]:
        """For each row the nearest usable column, the first of equals; -1 where there is none."""
        import numpy as np

        distance = np.where(self.usable, np.tensordot(np.array(weights), self.distances, axes=1), np.inf)
        nearest = np.argmin(np.round(distance, 9), axis=1)
        return np.where(self.usable.any(axis=1), nearest, -1)

    def total(self, weights: Sequence[float], without: int | None) -> float:
        """The sum of losses; a row that has no stored time counts as the plain config. Row ``without`` is not there."""
        import numpy as np

        usable = self.usable.copy()
        if without is not None:
            usable[:, without] = False
        answers = _Pairs(self.size, self.distances, self.losses, usable, self.without).answers(weights)
        rows = np.arange(self.size)
        losses = np.where(answers >= 0, self.losses[rows, answers], np.nan)
        losses = np.where(np.isnan(losses), self.without, losses)
        keep = rows != without if without is not None else np.ones(self.size, dtype=bool)
        return float(losses[keep].sum())


def _fit(tables: Sequence[_Pairs], axes: Sequence[str], without: tuple[_Pairs, int] | None = None) -> list[float]:
    """Coordinate descent over ``_STEPS`` from equal weights; a weight is changed for a gain only."""
    weights = [1.0] * len(axes)

    def total(trial: Sequence[float]) -> float:
        return sum(t.total(trial, without[1] if without is not None and t is without[0] else None) for t in tables)

    best = total(weights)
    for _ in range(_SWEEPS):
        for axis in range(len(axes)):
            for step in _STEPS:
                trial = [*weights[:axis], step, *weights[axis + 1 :]]
                if (cost := total(trial)) < best - 1e-12:
                    best, weights = cost, trial
    return weights


def _loss(rule: str, found: Sequence[float | None], unanswered: int) -> Loss:
    known = sorted(loss for loss in found if loss is not None)
    middle = len(known) // 2
    median = None
    if known:
        median = known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2
    return Loss(
        rule=rule,
        shapes=len(found) + unanswered,
        measured=len(known),
        unmeasured=len(found) - len(known),
        unanswered=unanswered,
        mean=sum(known) / len(known) if known else None,
        median=median,
        worst=known[-1] if known else None,
    )
