"""What is stored at one point: its winners, and what became of given configs there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tuner.regression.points import Point
from tuner.regression.report import Verdict
from tuner.regression.template_revisions import template_hashes
from tuner.store.history import History
from tuner.store.history_records import Key, MeasurementHead, TrialAt, WinnerAt
from tuner.store.winners import counting
from tuner.trial import Outcome

MOST_POOLED = 8
"""So many of a side's newest measurements count together: measuring again is how a doubt is settled."""

BROKEN = {
    Outcome.WRONG: Verdict.WRONG,
    Outcome.COMPILE_ERROR: Verdict.NO_LONGER_COMPILES,
    Outcome.OUT_OF_RESOURCES: Verdict.NO_LONGER_COMPILES,
    Outcome.CRASHED: Verdict.NO_LONGER_RUNS,
    Outcome.TIMED_OUT: Verdict.NO_LONGER_RUNS,
}
"""The outcomes that outrank any time."""

Place = tuple[str, str, str]
"""Problem key, device key, config key."""


@dataclass(frozen=True)
class Source:
    """Which of a config's trials is meant: on this stack, and of this source. Empty: of any."""

    stack_key: str = ""
    variant_hash: str = ""

    def admits(self, trial: TrialAt) -> bool:
        """Whether ``trial`` is meant."""
        return self.stack_key in ("", trial.stack_key) and self.variant_hash in ("", trial.variant_hash)


_ANY = Source()


@dataclass(frozen=True)
class Found:
    """A trial at a point, with its measurements there that count (of one protocol), oldest first."""

    trial: TrialAt
    heads: tuple[MeasurementHead, ...]

    @property
    def confirmed(self) -> bool:
        """Whether it was measured in interleaved rounds in fresh processes."""
        return bool(self.heads) and self.heads[-1].confirmed

    @property
    def measurement_ids(self) -> tuple[int, ...]:
        """The ids of its measurements."""
        return tuple(head.id for head in self.heads)


class PointReader:
    """What is stored at one point: its stacks, times and templates, in its database."""

    def __init__(self, history: History, point: Point, stacks: Mapping[str, tuple[str, ...]], flag: str) -> None:
        self.history, self.point, self.stacks = history, point, stacks
        self._templates = template_hashes(point.templates, flag) if point.templates else None

    def winners(self, every: Sequence[WinnerAt]) -> dict[tuple[str, str], WinnerAt]:
        """The winner of each problem on each device: as ``tuner best``, but here."""
        by_place: dict[tuple[str, str], list[WinnerAt]] = {}
        for winner in every:
            here = winner.stack_key in self.stacks.get(winner.device_key, ())
            if here and self.point.admits_moment(winner.created_at) and self._admits_template(winner.template_hash):
                by_place.setdefault((winner.problem_key, winner.device_key), []).append(winner)
        return {place: _best(winners) for place, winners in by_place.items()}

    def find(
        self, wanted: Iterable[Place], besides: frozenset[int], sources: Mapping[Place, Source] | None = None
    ) -> dict[Place, Found]:
        """The trial of each (problem, device, config) with its measurements, none of which are ``besides``.

        Of ``sources`` where they say which; else on the newest stack that knows the config, and of several sources the
        one that was measured, or found broken, last.
        """
        sources = sources or {}
        keys = [(p, d, s, c) for p, d, c in wanted for s in self.stacks.get(d, ())]
        trials = [
            t
            for t in self.history.trials(keys)
            if self._admits_template(t.template_hash) and sources.get(_place(t), _ANY).admits(t)
        ]
        twins = self._twins(trials)
        heads: dict[int, list[MeasurementHead]] = {}
        for head in self.history.measurements([t.id for t in (*trials, *twins.values())]):
            if self.point.admits_moment(head.created_at) and head.id not in besides:
                heads.setdefault(head.trial_id, []).append(head)
        found: dict[Place, tuple[int, datetime, Found]] = {}
        for trial in trials:
            own = heads.get(trial.id, [])
            if not own and _key(trial) in twins:
                own = heads.get(twins[_key(trial)].id, [])
            broken = trial.outcome in BROKEN and self.point.admits_moment(trial.changed_at)
            moments = [*(head.created_at for head in own[-1:]), *([trial.changed_at] if broken else [])]
            if moments:
                rank = self.stacks[trial.device_key].index(trial.stack_key)
                here = (rank, max(moments), Found(trial, _pooled(own)))
                best = found.get(_place(trial))
                if best is None or here[:2] >= best[:2]:
                    found[_place(trial)] = here
        return {place: each for place, (_, _, each) in found.items()}

    def _twins(self, trials: Sequence[TrialAt]) -> dict[Key, TrialAt]:
        """Configs of one binary are measured once; the trial that was, by the key of the one that was not."""
        wanted = {_key(t): (t.problem_key, t.device_key, t.stack_key, t.same_as) for t in trials if t.same_as}
        measured = {_key(t): t for t in self.history.trials(wanted.values())} if wanted else {}
        return {key: measured[other] for key, other in wanted.items() if other in measured}

    def _admits_template(self, template_hash: str) -> bool:
        return self._templates is None or template_hash in self._templates


def _best(winners: Sequence[WinnerAt]) -> WinnerAt:
    """Of those on the newest one's stack, the one that counts. ``winners`` are newest first."""
    valid = [w for w in winners if w.outcome is Outcome.TIMED]
    if not valid:
        return winners[0]
    return counting(w for w in valid if w.stack_key == valid[0].stack_key)


def _pooled(heads: Sequence[MeasurementHead]) -> tuple[MeasurementHead, ...]:
    """The confirmed measurements of the newest one's protocol; where there is none, the last look alone."""
    confirmed = [head for head in heads if head.confirmed]
    if not confirmed:
        return tuple(heads[-1:])
    return tuple(head for head in confirmed if head.protocol == confirmed[-1].protocol)[-MOST_POOLED:]


def _place(trial: TrialAt) -> Place:
    return trial.problem_key, trial.device_key, trial.config_key


def _key(trial: TrialAt) -> Key:
    return trial.problem_key, trial.device_key, trial.stack_key, trial.config_key
