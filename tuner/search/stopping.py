"""Ends a search by itself, once the model says that nothing better is likely to be left."""

from __future__ import annotations

from collections.abc import Callable

from tuner.config import Config
from tuner.search.base import Proposal, Proposer
from tuner.trial import Outcome

LOOK_EVERY, LOOKS, LEAST_RESULTS = 10, 3, 40
"""The model is asked after every so many results; it must say so that many times on end, and not before this many."""

NEGLIGIBLE = 0.02
"""A chance of something better below this is none worth measuring for."""


class StoppingProposer:
    """``inner``, until nothing better is likely to be left: then it has no proposal more.

    ``on_stop`` is called once, with the chance and the number of results that this run has seen, those that were known
    when it began included (``known``). A search whose proposer cannot tell (``chance_of_better`` is None) goes on.
    """

    def __init__(self, inner: Proposer, known: int, on_stop: Callable[[float, int], None]) -> None:
        self._inner, self._on_stop = inner, on_stop
        self._results = known
        self._next_look = known + LOOK_EVERY
        self._below = 0
        self._stopped = False

    @property
    def study_name(self) -> str:
        """See ``Proposer.study_name``."""
        return self._inner.study_name

    def ask(self) -> Proposal | None:
        """See ``Proposer.ask``; None too where the search has stopped."""
        if not self._stopped and self._results >= self._next_look:
            self._next_look = self._results + LOOK_EVERY
            self._look()
        return None if self._stopped else self._inner.ask()

    def tell(self, proposal: Proposal, outcome: Outcome, value_us: float | None) -> None:
        """See ``Proposer.tell``."""
        self._inner.tell(proposal, outcome, value_us)
        self._results += 1

    def learn(self, config: Config, outcome: Outcome, value_us: float | None) -> None:
        """See ``Proposer.learn``."""
        self._inner.learn(config, outcome, value_us)
        self._results += 1

    def withdraw(self, proposal: Proposal) -> None:
        """See ``Proposer.withdraw``."""
        self._inner.withdraw(proposal)

    def chance_of_better(self) -> float | None:
        """See ``Proposer.chance_of_better``."""
        return self._inner.chance_of_better()

    def expected_gain(self) -> float | None:
        """See ``Proposer.expected_gain``."""
        return self._inner.expected_gain()

    def close(self) -> None:
        """See ``Proposer.close``."""
        self._inner.close()

    def _look(self) -> None:
        chance = self._inner.chance_of_better()
        self._below = self._below + 1 if chance is not None and chance < NEGLIGIBLE else 0
        if chance is not None and self._below >= LOOKS and self._results >= LEAST_RESULTS:
            self._stopped = True
            self._on_stop(chance, self._results)
