"""Of all processes that run one study, each config goes to one: what this one may work on, and what others found."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from tuner.funnel import Ticket
from tuner.search import Proposal, Proposer
from tuner.store.records import ClaimState, StoredTrial, StudyRecord
from tuner.store.store import Store
from tuner.tickets import TicketOffice
from tuner.trial import Outcome, TrialRecord

LOOK_S = 1.0
"""Seconds between two looks at what the others have done."""


@dataclass(frozen=True)
class _Open:
    proposal: Proposal
    ticket: Ticket


class SharedQueue:
    """The study's configs, one after the other. ``most``: how many the study may hold, those of others included.

    A config is claimed in the database before it is given out. One that another process works on is kept aside: its
    result is taken over when it is there, and where that process dies the config is claimed again. Not thread-safe.
    """

    def __init__(
        self, store: Store, study: StudyRecord, office: TicketOffice, proposer: Proposer, most: int | None
    ) -> None:
        self._store, self._study, self._office, self._proposer, self._most = store, study, office, proposer, most
        self._open: dict[int, _Open] = {}
        self._aside: list[_Open] = []
        self._found: list[StoredTrial] = []
        self._seen = study.trials
        self._told: set[str] = set()
        self._exhausted = self._full = False
        self._next_look = time.monotonic() + LOOK_S

    @property
    def aside(self) -> int:
        """Configs that wait for what other processes make of them."""
        return len(self._aside)

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing left to be given out, now or later."""
        return self._exhausted and not self._aside

    def next(self) -> Ticket | None:
        """One more config that is this process's; None where there is none at the moment."""
        while not self._full and not self._exhausted:
            proposal = self._proposer.ask()
            if proposal is None:
                self._exhausted = True
            elif self._claimed(entry := _Open(proposal, self._office.ticket(proposal.config))):
                return entry.ticket
        return None

    def look(self, at_once: bool = False) -> tuple[list[StoredTrial], list[Ticket]]:
        """What others have found since the last look, and configs of theirs that are this process's now.

        Within a second of the last look nothing but what claims have shown since, unless ``at_once``.
        """
        tickets: list[Ticket] = []
        if at_once or time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_S
            # First what was found: most of what is kept aside has its result by then.
            for ordinal, trial in self._store.trials_since(self._study.id, self._seen):
                self._seen = ordinal + 1
                self._learn(trial)
            self._full = False
            waiting, self._aside = self._aside, []
            tickets = [entry.ticket for entry in waiting if self._claimed(entry)]
        found, self._found = self._found, []
        return found, tickets

    def close(self, ticket: Ticket, record: TrialRecord) -> None:
        """A config's result; it is stored already."""
        self._told.add(record.config.key)
        self._proposer.tell(self._open.pop(ticket.number).proposal, record.outcome, record.value_us)

    def give_back(self, tickets: Iterable[Ticket]) -> None:
        """Configs that came to nothing (the budget ended), and those that are kept aside."""
        for ticket in tickets:
            entry = self._open.pop(ticket.number, None)
            if entry is not None:
                self._proposer.withdraw(entry.proposal)
                self._store.give_back(self._study.id, ticket.config, ticket.variant.hash)
        for entry in self._aside:
            self._proposer.withdraw(entry.proposal)
        self._aside.clear()

    def _claimed(self, entry: _Open) -> bool:
        ticket = entry.ticket
        claim = self._store.claim(
            self._study.id, ticket.config, ticket.variant.hash, ticket.candidate.promise, most=self._most
        )
        if claim.state is ClaimState.CLAIMED:
            self._open[ticket.number] = entry
            return True
        if claim.trial is not None:
            self._told.add(ticket.config.key)
            self._found.append(claim.trial)
            self._proposer.tell(entry.proposal, claim.trial.outcome, claim.trial.value_us)
        else:
            self._full = self._full or claim.state is ClaimState.FULL
            self._aside.append(entry)
        return False

    def _learn(self, trial: StoredTrial) -> None:
        key = trial.config.key
        entry = next((e for e in self._aside if e.ticket.config.key == key), None)
        if key in self._told or key in {e.ticket.config.key for e in self._open.values()}:
            return
        self._told.add(key)
        self._found.append(trial)
        if entry is None:
            self._proposer.learn(trial.config, trial.outcome, trial.value_us)
        else:
            self._aside.remove(entry)
            self._proposer.tell(entry.proposal, Outcome(trial.outcome), trial.value_us)
