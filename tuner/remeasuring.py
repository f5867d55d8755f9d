"""Checks and measures stored winners, their runners-up and plain configs again on today's stack, without searching."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tuner.config import Config
from tuner.errors import UsageError
from tuner.finals import FINAL_PROCESSES, Contender, Finals
from tuner.finals import Outcome as FinalOutcome
from tuner.funnel import Ticket
from tuner.known import same_or_none
from tuner.machine import Machine
from tuner.program import Program
from tuner.querying import Filters, selection
from tuner.remeasurement import Advice, Batch, Entry, Remeasurement, Role, advise, ratio_of, roles
from tuner.space import BoundSpace, Space
from tuner.steps import finish
from tuner.store.records import KnownTrials, StoredWinner
from tuner.store.store import Store
from tuner.study_end import ESTIMATE_INDIFFERENCE
from tuner.study_opening import make_funnel
from tuner.tickets import TicketOffice
from tuner.trial import Outcome, TrialRecord

STAGE = "remeasure"
DEFAULT_RUNNERS_UP = 5
_TICK_S = 0.2


@dataclass(frozen=True)
class _Tried:
    """A config that went through the funnel, as it was recorded."""

    role: Role
    ticket: Ticket
    trial_id: int
    record: TrialRecord


class Remeasuring:
    """Measures on one machine what ``store`` holds. ``notice`` is told what people should know."""

    def __init__(
        self, store: Store, machine: Machine, seed: int, runners_up: int, notice: Callable[[str], None]
    ) -> None:
        self.store, self.machine, self.seed = store, machine, seed
        self._runners_up, self._notice = runners_up, notice

    def run(self, winners: Sequence[StoredWinner], space: Callable[[str], Space]) -> Iterator[Remeasurement]:
        """One batch after the other; each is stored before it is given. ``space``: an operator's search space."""
        for winner in winners:
            problem, machine = winner.problem, self.machine
            try:
                bound = space(problem.operator).bind(
                    problem, machine.device, gpu=machine.measures, triton_version=machine.stack.triton
                )
            except UsageError as error:  # its operator or its search space is gone; the others are not
                self._notice(f"{problem.label} is left out: {error}")
                continue
            yield self._batch(winner, bound)

    def _batch(self, winner: StoredWinner, bound: BoundSpace) -> Remeasurement:
        office = TicketOffice(bound, self.machine.workspace, self.machine.stack.triton)
        stored = self.store.known_trials(winner.problem.key, winner.device.key, winner.stack.key)
        plain = stored[winner.record.plain_key].config if winner.record.plain_key in stored else None
        beside = _runners_up(winner, stored)[: self._runners_up]
        wanted = roles(winner.config, beside, plain or next(iter(bound.plain()), None))
        entries: dict[str, Entry] = {}
        tickets: list[tuple[Role, Ticket]] = []
        for key, (role, config) in wanted.items():
            same = same_or_none(bound, config)
            if same is None:
                entries[key] = Entry(role, config, None, "its search space does not hold it any more")
            else:
                tickets.append((role, office.ticket(same)))
        sources = {key: stored[key].variant_hash for key in wanted if key in stored}
        tried = self._through_the_funnel(bound, tickets)
        batch = self._measured(bound, tried) if self.machine.measures else self._estimated(tried)
        found = {entry.config.key: entry for entry in batch.entries}
        for _, ticket in tickets:
            key = ticket.config.key
            changed = key in sources and sources[key] != ticket.variant.hash
            entries[key] = replace(found[key], source_changed=changed)
        batch = replace(batch, entries=tuple(entries[key] for key in wanted))
        return self._said(winner, entries[winner.config.key], batch)

    def _said(self, winner: StoredWinner, own: Entry, batch: Batch) -> Remeasurement:
        advice, to, reason = advise(own, winner.record.median_us, batch)
        gain = low = high = None
        if to is not None and own.median_us is not None and to.key != own.config.key and advice is Advice.SWITCH:
            other = next(e for e in batch.entries if e.config.key == to.key)
            ratio, base = ratio_of(batch.entries, own.config.key), ratio_of(batch.entries, to.key)
            gain = own.median_us / (other.median_us or own.median_us) - 1.0
            # The limits are of ratios to the fastest: they hold as they stand where that one is switched to.
            if ratio is not None and base is not None and base.ratio == 1.0:
                gain, low, high = ratio.ratio - 1.0, ratio.low - 1.0, ratio.high - 1.0
        return Remeasurement(
            problem=winner.problem,
            device=winner.device.name,
            stack=self.machine.stack.label,
            stored_stack=winner.stack.label,
            stored_us=winner.record.median_us,
            advice=advice,
            to=to,
            reason=reason,
            entries=batch.entries,
            gain=gain,
            gain_low=low,
            gain_high=high,
            estimated=not self.machine.measures,
        )

    def _through_the_funnel(self, bound: BoundSpace, tickets: Sequence[tuple[Role, Ticket]]) -> list[_Tried]:
        """Compiles, checks and looks at each; every outcome is stored at once."""
        if not tickets:
            return []
        role_of = {ticket.number: role for role, ticket in tickets}
        funnel = make_funnel(self.machine, bound.problem, tickets[0][1].candidate, self.seed)
        for _, ticket in tickets:
            funnel.submit(ticket)
        tried = []
        try:
            while funnel.in_flight:
                for ticket, record in funnel.poll(_TICK_S):
                    trial_id = self._store(bound, ticket, record)
                    tried.append(_Tried(role_of[ticket.number], ticket, trial_id, record))
        finally:
            funnel.abandon()
        return sorted(tried, key=lambda t: t.ticket.number)

    def _store(self, bound: BoundSpace, ticket: Ticket, record: TrialRecord) -> int:
        return self.store.record_result(bound.problem, self.machine.device, self.machine.stack, record, ticket.variant)

    def _measured(self, bound: BoundSpace, tried: Sequence[_Tried]) -> Batch:
        """The finals among all that are right, however slow."""
        contenders = _contenders(tried)
        if not contenders:
            return Batch(tuple(_entry(t) for t in tried), "", (), "none of them works", True)
        # What the first process keeps on the card must not differ from one config to another.
        self.machine.gpu.kill()
        plain = [c for c in contenders if c.is_plain]
        anchor = min(plain or contenders, key=lambda c: c.screen_us)
        finals = Finals(bound.problem, bound.device, self.seed, self._notice)
        workers = [self.machine.fresh_worker(f"remeasure-{n}") for n in range(FINAL_PROCESSES)]
        outcome, wrong = finish(finals.finals(workers, contenders, anchor))
        entries = tuple(self._confirmed(bound, t, contenders, outcome, wrong) for t in tried)
        if outcome is None:
            return Batch(entries, "", (), "none of them could be measured", True)
        decision = outcome.decision
        ties = _with_twins(tried, decision.ties)
        steady = decision.noise_model_ok and not outcome.unstable
        return Batch(entries, outcome.winner.key, ties, outcome.verdict, steady)

    def _confirmed(
        self,
        bound: BoundSpace,
        tried: _Tried,
        contenders: Sequence[Contender],
        outcome: FinalOutcome | None,
        wrong: dict[str, str],
    ) -> Entry:
        """What the finals say of one config; stored. Twins have what the one that was measured has."""
        entry = _entry(tried)
        if tried.record.outcome not in (Outcome.TIMED, Outcome.PRUNED):
            return entry
        entry = replace(entry, median_us=None, low_us=None, high_us=None)
        program = Program.of(tried.record)
        key = next((c.key for c in contenders if c.key == tried.ticket.config.key), "")
        key = key or next(c.key for c in contenders if program and _same(c, program))
        if key in wrong:
            reason = f"when it was measured again: {wrong[key]}"
            failed = replace(tried.record, outcome=Outcome.WRONG, reason=reason, value_us=None, measurements=())
            self._store(bound, tried.ticket, failed)
            return replace(entry, outcome=Outcome.WRONG, reason=reason)
        if outcome is None or key not in outcome.measurements:
            return replace(entry, outcome=Outcome.CRASHED, reason="its process ended in the final re-measurement")
        measured = replace(outcome.measurements[key], stage=STAGE)
        if key == tried.ticket.config.key:
            if tried.record.outcome is Outcome.PRUNED:
                better = replace(tried.record, outcome=Outcome.TIMED, reason="", value_us=measured.median_us)
                self._store(bound, tried.ticket, better)
            self.store.record_measurements(tried.trial_id, [measured])
        return replace(
            entry,
            outcome=Outcome.TIMED,
            reason="",
            median_us=measured.median_us,
            low_us=measured.low_us,
            high_us=measured.high_us,
            ratio=outcome.decision.ratios.get(key),
        )

    def _estimated(self, tried: Sequence[_Tried]) -> Batch:
        """By the static estimate; differences below its indifference are none."""
        entries = tuple(_entry(t) for t in tried)
        working = {e.config.key: e.median_us for e in entries if e.median_us is not None}
        if not working:
            return Batch(entries, "", (), "none of them works", True)
        best = min(working.values())
        ties = tuple(key for key, us in working.items() if us <= (1.0 + ESTIMATE_INDIFFERENCE) * best)
        verdict = f"estimated, not measured: {len(ties)} of {len(working)} are within 1 % of the best estimate"
        return Batch(entries, ties[0], ties, verdict, True)


def stored_winners(store: Store, machine: Machine, filters: Filters) -> list[StoredWinner]:
    """The winners stored for the machine's device, of the problems that ``filters`` admits, the oldest first.

    Raises ``UsageError`` where there are none.
    """
    estimated = not machine.measures
    known = store.history.catalogue()
    admitted = selection(known, "winners", filters).problem_keys
    problems = {
        winner.problem_key: None
        for winner in store.history.winners(estimated=estimated)
        if winner.device_key == machine.device.key and (admitted is None or winner.problem_key in admitted)
    }
    found = [store.best(known.problems[key], machine.device.key, estimated=estimated) for key in problems]
    winners = [winner for winner in found if winner is not None and winner.record.estimated is estimated]
    if not winners:
        what = "estimated winner" if estimated else "measured winner"
        other = ", or name another with --target" if estimated else ""
        raise UsageError(f"no such {what} is stored for {machine.device.name}; run `tuner tune` first{other}")
    return sorted(winners, key=lambda winner: winner.created_at)


def _runners_up(winner: StoredWinner, stored: KnownTrials) -> list[Config]:
    """Those that were measured beside the winner, the fastest first; where nothing was, the next in the search."""
    times = {str(f.get("key", "")): float(f.get("median_us", 0.0)) for f in winner.record.finalists}
    if not times:
        times = {key: t.value_us for key, t in stored.items() if t.value_us is not None and not t.same_as}
    others = [key for key in sorted(times, key=lambda key: times[key]) if key in stored and key != winner.config.key]
    return [stored[key].config for key in others if key != winner.record.plain_key]


def _entry(tried: _Tried) -> Entry:
    record = tried.record
    us = record.value_us
    return Entry(tried.role, record.config, record.outcome, record.reason, us, us, us)


def _contenders(tried: Sequence[_Tried]) -> list[Contender]:
    """One for each program that is right: the first of those that are one, so the stored winner before others."""
    by_program: dict[object, _Tried] = {}
    for one in tried:
        if one.record.outcome in (Outcome.TIMED, Outcome.PRUNED):
            by_program.setdefault(Program.of(one.record) or one.ticket.config.key, one)
    return [
        Contender(
            config=one.ticket.config,
            candidate=one.ticket.candidate,
            screen_us=_first_us(one.record),
            compiled=one.record.compile_report,
            is_plain=one.role is Role.PLAIN,
        )
        for one in by_program.values()
    ]


def _first_us(record: TrialRecord) -> float:
    if record.value_us is not None:
        return record.value_us
    return record.measurements[0].median_us if record.measurements else float("inf")


def _same(contender: Contender, program: Program) -> bool:
    compiled = contender.compiled
    return compiled is not None and Program(compiled.binary_hash, contender.candidate.promise) == program


def _with_twins(tried: Sequence[_Tried], ties: Sequence[str]) -> tuple[str, ...]:
    """The tied configs and those that are the same program as one of them."""
    tied = {Program.of(t.record) for t in tried if t.ticket.config.key in ties} - {None}
    return tuple(t.ticket.config.key for t in tried if t.ticket.config.key in ties or Program.of(t.record) in tied)
