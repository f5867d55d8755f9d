"""What re-measuring a stored winner says: keep it, switch, or tune again. Frozen values and the pure decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tuner.config import Config
from tuner.deciding import RatioInterval
from tuner.problem import Problem
from tuner.trial import Outcome

FAR_SLOWER = 0.05
"""Where the best of the batch is slower than the stored time by more than this, a search may find better."""


class Advice(StrEnum):
    """What to do with a stored winner."""

    KEEP = "keep"
    SWITCH = "switch"
    TUNE_AGAIN = "tune again"


class Role(StrEnum):
    """What a config was when it was tuned."""

    WINNER = "winner"
    RUNNER_UP = "runner-up"
    PLAIN = "plain"


@dataclass(frozen=True)
class Entry:
    """One config of the batch now. ``outcome`` is None where it could not be tried at all; ``reason`` says why.

    Times are microseconds with a 95 % interval. ``ratio`` is its time over the fastest's, from shared rounds (None for
    estimates, and where it was not measured). ``source_changed``: its template was edited since.
    """

    role: Role
    config: Config
    outcome: Outcome | None
    reason: str = ""
    median_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    ratio: RatioInterval | None = None
    source_changed: bool = False


@dataclass(frozen=True)
class Remeasurement:
    """One problem's batch on today's stack. ``stored_us`` and ``stored_stack`` are of the stored winner.

    ``to`` is the config to use: the stored winner for ``keep``, another for ``switch``, None where nothing works.
    ``gain`` is the stored winner's time over ``to``'s, less one (0.05: 5 % slower), with ``gain_low`` and ``gain_high``
    where it was measured in shared rounds.
    """

    problem: Problem
    device: str
    stack: str
    stored_stack: str
    stored_us: float
    advice: Advice
    to: Config | None
    reason: str
    entries: tuple[Entry, ...]
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    estimated: bool = False


@dataclass(frozen=True)
class Batch:
    """What was found, for ``advise``: the fastest config's key, those tied with it, and whether it can be trusted.

    ``chosen`` is the simplest of the tie. ``verdict`` is the finals' sentence. ``steady``: neither the card nor its
    noise gave reason for doubt.
    """

    entries: tuple[Entry, ...]
    chosen: str
    ties: tuple[str, ...]
    verdict: str
    steady: bool


def advise(stored: Entry, stored_us: float, batch: Batch) -> tuple[Advice, Config | None, str]:
    """What to do, with which config, and why. ``stored`` is the stored winner's entry of the batch.

    What is wrong or refused is never kept. A difference within the finals' indifference is none.
    """
    working = {e.config.key: e for e in batch.entries if e.median_us is not None}
    if not working:
        return Advice.TUNE_AGAIN, None, f"none of the {len(batch.entries)} works here: {stored.reason}"
    chosen = working.get(batch.chosen) or next(iter(working.values()))
    if stored.median_us is None:
        why = f"the stored winner cannot be used: {stored.outcome or 'left out'}: {stored.reason}"
        if chosen.role is Role.PLAIN:
            return Advice.TUNE_AGAIN, chosen.config, f"{why}; nothing but the plain config is left"
        return Advice.SWITCH, chosen.config, why
    if not batch.steady:
        return Advice.KEEP, stored.config, f"not decided: {batch.verdict}; measure again"
    fastest = min(e.low_us or e.median_us or stored_us for e in working.values())
    if fastest > (1.0 + FAR_SLOWER) * stored_us:
        return (
            Advice.TUNE_AGAIN,
            chosen.config,
            f"the best of the batch is {fastest / stored_us - 1.0:.0%} slower than the winner was when it was stored",
        )
    if stored.config.key in batch.ties:
        return Advice.KEEP, stored.config, batch.verdict
    return Advice.SWITCH, chosen.config, batch.verdict


def ratio_of(entries: Sequence[Entry], key: str) -> RatioInterval | None:
    """The ratio of the entry of a config."""
    return next((e.ratio for e in entries if e.config.key == key), None)


def roles(winner: Config, runners_up: Sequence[Config], plain: Config | None) -> Mapping[str, tuple[Role, Config]]:
    """The configs of a batch by key, each once, in this order of roles."""
    found: dict[str, tuple[Role, Config]] = {winner.key: (Role.WINNER, winner)}
    for config in runners_up:
        if plain is None or config.key != plain.key:
            found.setdefault(config.key, (Role.RUNNER_UP, config))
    if plain is not None:
        found.setdefault(plain.key, (Role.PLAIN, plain))
    return found
