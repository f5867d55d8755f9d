"""The seam of the search: who asks, what is proposed, what is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from tuner.config import Config, Value
from tuner.trial import Outcome

Source = Literal["plain", "similar", "sampler", "enumeration", "known"]
"""Why a trial is there. ``similar``: it won for a similar problem.
``known`` marks results that came from the database; such a trial is never proposed.
"""

Known = Mapping[str, tuple[Outcome, float | None]]
"""What earlier work says: ``Config.key`` -> (outcome, microseconds where there is a time)."""


@dataclass(frozen=True)
class Proposal:
    """A config to try next. ``number`` is the number of its Optuna trial."""

    number: int
    config: Config
    source: Source


class SearchSpace(Protocol):
    """What a search needs of a space: ``BoundSpace`` has it, and so does a recorded space."""

    @property
    def templates(self) -> tuple[str, ...]:
        """The templates that have valid configs."""
        ...

    @property
    def refused(self) -> Mapping[str, str]:
        """Why other templates have none."""
        ...

    def domain(self, template: str) -> dict[str, tuple[Value, ...]]:
        """The searched names with their choices."""
        ...

    def is_valid(self, template: str, chosen: Mapping[str, Value]) -> bool:
        """Whether ``config`` would give one."""
        ...

    def config(self, template: str, chosen: Mapping[str, Value]) -> Config:
        """The config of ``template`` with ``chosen`` for every searched name."""
        ...

    def configs(self) -> Iterator[Config]:
        """Every valid config, always in the same order."""
        ...

    def plain(self) -> tuple[Config, ...]:
        """What is tried first."""
        ...


class Proposer(Protocol):
    """Proposes configs that are valid and were not tried before. It never compiles, times or prints.

    Several proposals may be open at once. Call it from one thread.
    """

    @property
    def study_name(self) -> str:
        """The name of the Optuna study: the one asked for, or another where that one has other choices of values."""
        ...

    def ask(self) -> Proposal | None:
        """The next config to try, or None when every valid config has been tried or is open."""
        ...

    def tell(self, proposal: Proposal, outcome: Outcome, value_us: float | None) -> None:
        """Closes an open proposal.

        ``value_us`` is the time in microseconds: required for ``timed``, optional for ``pruned`` (how slow it had been
        when it was cut short), ignored otherwise. Store the result first and tell it then: what is stored is never
        asked for again. Raises ``ValueError`` where the proposal is not open or the time not positive and finite.
        """
        ...

    def learn(self, config: Config, outcome: Outcome, value_us: float | None) -> None:
        """A result that another process found: learnt from, and never proposed. One that is known here is left.

        ``value_us`` as in ``tell``. Raises ``KeyError`` where the config is not of this space.
        """
        ...

    def withdraw(self, proposal: Proposal) -> None:
        """Closes an open proposal without a result (the budget ended); its config may be proposed again."""
        ...

    def chance_of_better(self) -> float | None:
        """How likely it is that an untried config is faster than the best by 1 % or more, 0 to 1, says the model.

        None where there is no model, or too little to go by: before every plain config has ended, for one.
        """
        ...

    def expected_gain(self) -> float | None:
        """What the config proposed last was expected to gain over the best: a share of the best time, 0.01 is 1 %.

        None where no model proposed it.
        """
        ...

    def close(self) -> None:
        """Ends its connections to the storage. It cannot be used afterwards."""
        ...
