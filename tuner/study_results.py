"""What a run of a study knows of each config, and who of them may be the winner."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tuner.config import Config
from tuner.finals import Contender
from tuner.program import Program
from tuner.store.records import StoredTrial
from tuner.tickets import TicketOffice
from tuner.trial import Outcome, TrialRecord


@dataclass(frozen=True)
class Result:
    """What became of a config, in this run or before it."""

    trial_id: int
    config: Config
    outcome: Outcome
    value_us: float | None
    record: TrialRecord | StoredTrial

    @property
    def program(self) -> Program:
        """What it compiles to and is checked for; its own where that is not known."""
        return Program.of(self.record) or Program(self.config.key, "")


class Results:
    """The results of a study by the key of their config. ``plain``: the plain configs' keys."""

    def __init__(self, plain: Iterable[str]) -> None:
        self.plain = frozenset(plain)
        self.by_key: dict[str, Result] = {}

    def __len__(self) -> int:
        return len(self.by_key)

    @property
    def counts(self) -> Counter[Outcome]:
        """How many ended how."""
        return Counter(result.outcome for result in self.by_key.values())

    @property
    def best(self) -> Result | None:
        """The fastest so far."""
        timed = [r for r in self.by_key.values() if r.outcome is Outcome.TIMED and r.value_us is not None]
        return min(timed, key=lambda r: r.value_us or math.inf, default=None)

    @property
    def plain_have_ended(self) -> bool:
        """Whether every plain config has a result."""
        return self.plain <= self.by_key.keys()

    def of_program(self, program: Program) -> list[Result]:
        """The timed configs that are ``program``."""
        return [r for r in self.by_key.values() if r.program == program and r.outcome is Outcome.TIMED]

    def contenders(self, office: TicketOffice) -> list[Contender]:
        """One config for each program that was timed: the plain one where it is among them."""
        by_program: dict[Program, list[Result]] = {}
        for result in self.by_key.values():
            if result.outcome is Outcome.TIMED:
                by_program.setdefault(result.program, []).append(result)
        chosen = [
            min(same, key=lambda r: (r.config.key not in self.plain, bool(r.record.same_as)))
            for same in by_program.values()
        ]
        return [
            Contender(
                config=r.config,
                candidate=office.candidate(r.config),
                screen_us=r.value_us,
                compiled=r.record.compile_report,
                is_plain=r.config.key in self.plain,
            )
            for r in chosen
            if r.value_us is not None
        ]
