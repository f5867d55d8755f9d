"""The final decision among finalists, from interleaved samples of several processes: a winner by how much, or a tie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.racing import Rounds
from tuner.statistics import student_t_quantile

RESAMPLES = 1000
INDIFFERENCE = 0.01
"""Differences below one per cent are called ties."""


@dataclass(frozen=True)
class RatioInterval:
    """A finalist's time over the winner's (1.02 is 2 % slower); its 95 % limits hold for all finalists at once."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Decision:
    """The outcome. ``ties`` holds the winner and all that are not shown to be slower by more than the zone.

    ``control`` is the anchor's second entry over its first; where the two are separated, ``noise_model_ok`` is False
    and the winner is a leader only. ``blocks`` is how many (process, round) pairs were complete.
    """

    winner: str
    ties: tuple[str, ...]
    ratios: Mapping[str, RatioInterval]
    verdict: str
    blocks: int
    control: RatioInterval | None = None
    noise_model_ok: bool = True


def decide(
    samples: Mapping[str, Rounds],
    anchor: str = "",
    control: str = "",
    indifference: float = INDIFFERENCE,
    seed: int = 0,
    labels: Mapping[str, str] | None = None,
) -> Decision:
    """Decide among ``samples`` (finalist -> {(process, round): time}).

    ``anchor`` and ``control`` name two entries that are one and the same config (either may be left out; the control
    is no candidate). The winner has the smallest median of time over the anchor's time in the same block (over the
    block's median without an anchor). Limits are bootstrapped over blocks, seeded. Only blocks that every entry has
    are used.
    Raises ``ValueError`` with fewer than two such blocks, or an unknown name.
    """
    unknown = [name for name in (anchor, control) if name and name not in samples]
    candidates = [name for name in samples if name != control]
    if unknown or not candidates:
        raise ValueError(f"not among the finalists: {', '.join(unknown) or 'any candidate'}")
    blocks = [b for b in samples[candidates[0]] if all(b in rounds for rounds in samples.values())]
    if len(blocks) < 2:
        raise ValueError(f"a decision needs at least two blocks that all finalists share, but got {len(blocks)}")
    logs = {name: np.log([samples[name][b] for b in blocks]) for name in samples}
    base = logs[anchor] if anchor else np.median(np.stack([logs[c] for c in candidates]), axis=0)
    winner = min(candidates, key=lambda name: float(np.median(logs[name] - base)))
    draws = np.random.default_rng(seed).integers(0, len(blocks), (RESAMPLES, len(blocks)))

    others = [name for name in candidates if name != winner]
    ratios = {winner: RatioInterval(1.0, 1.0, 1.0)}
    for name in others:
        ratios[name] = _ratio_interval(logs[name] - logs[winner], draws, 0.05 / len(others))
    ties = tuple(name for name in candidates if ratios[name].low < 1.0 + indifference)
    same = _ratio_interval(logs[control] - logs[anchor], draws, 0.01) if anchor and control else None
    # A steady difference far below the zone (memory placement, say) cannot turn a verdict, so half a zone is allowed.
    trusted = same is None or same.low <= 1.0 <= same.high or abs(same.ratio - 1.0) <= indifference / 2.0
    verdict = _verdict(winner, ties, ratios, indifference, labels or {})
    if same is not None and not trusted:
        span = f"{_percent(same.low)}..{_percent(same.high)} %"
        verdict = f"not decided: the anchor, entered twice, differs from itself by {span}; {verdict}"
    return Decision(winner, ties, ratios, verdict, len(blocks), same, trusted)


def _ratio_interval(
    log_ratios: npt.NDArray[np.float64], draws: npt.NDArray[np.int64], error_rate: float
) -> RatioInterval:
    """Median ratio and limits: Student's t times the bootstrap's standard error (percentiles would need more draws)."""
    n = len(log_ratios)
    centre = float(np.median(log_ratios))
    spread = float(np.std(np.median(log_ratios[draws], axis=1))) * math.sqrt(n / (n - 1))
    reach = student_t_quantile(1.0 - error_rate / 2.0, n - 1) * spread
    return RatioInterval(math.exp(centre), math.exp(centre - reach), math.exp(centre + reach))


def _verdict(
    winner: str,
    ties: tuple[str, ...],
    ratios: Mapping[str, RatioInterval],
    indifference: float,
    labels: Mapping[str, str],
) -> str:
    def called(name: str) -> str:
        return labels.get(name, name)

    if len(ratios) == 1:
        return f"{called(winner)} is the only finalist"
    if len(ties) > 1:
        ordered = sorted(ties, key=lambda name: ratios[name].ratio)
        shown = ", ".join(called(name) for name in ordered[:5]) + (", ..." if len(ordered) > 5 else "")
        return f"tie of {len(ties)}: {shown} (within {_percent(1.0 + indifference)} % or not separable)"
    runner_up = min((r for name, r in ratios.items() if name != winner), key=lambda r: r.ratio)
    return f"{called(winner)} wins by {_percent(runner_up.low)}..{_percent(runner_up.high)} %"


def _percent(ratio: float) -> str:
    return f"{100.0 * (ratio - 1.0):.1f}"
