"""A list of configs as a proposer, beside the one that searches a space."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.config import Config
from tuner.search.base import Proposal
from tuner.trial import Outcome


class ListedProposer:
    """Proposes every config once, in the order given; the first is its author's own choice."""

    study_name = ""

    def __init__(self, configs: Iterable[Config]) -> None:
        self._waiting = list({config.key: config for config in configs}.values())
        self._next = 0

    def ask(self) -> Proposal | None:
        """See ``Proposer.ask``."""
        if self._next == len(self._waiting):
            return None
        self._next += 1
        return Proposal(self._next - 1, self._waiting[self._next - 1], "plain" if self._next == 1 else "enumeration")

    def tell(self, proposal: Proposal, outcome: Outcome, value_us: float | None) -> None:
        """There is nothing to learn."""

    def learn(self, config: Config, outcome: Outcome, value_us: float | None) -> None:
        """There is nothing to learn."""

    def withdraw(self, proposal: Proposal) -> None:
        """It is not proposed again."""

    def chance_of_better(self) -> None:
        """There is no model."""

    def expected_gain(self) -> None:
        """There is no model."""

    def close(self) -> None:
        """There is nothing to end."""
