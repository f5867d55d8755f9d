"""Numbers as people read them: times, shares, gains."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.trial import Outcome


def time_text(us: float | None, estimated: bool = False) -> str:
    """Three digits and a unit (``12.3 us``, ``1.07 ms``), marked where estimated; ``-`` for None."""
    if us is None:
        return "-"
    value, unit = (us, "us") if us < 1e3 else (us / 1e3, "ms") if us < 1e6 else (us / 1e6, "s")
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {unit}" + (" (estimated)" if estimated else "")


def interval_text(low_us: float | None, high_us: float | None) -> str:
    """``[12.1 us, 12.6 us]``; empty where there is none (an estimate has no spread)."""
    if low_us is None or high_us is None or low_us == high_us:
        return ""
    return f"[{time_text(low_us)}, {time_text(high_us)}]"


def gain_text(speedup: float | None) -> str:
    """What the winner gains over the plain config: ``1.32x``; ``-`` where the plain config has no time."""
    return "-" if speedup is None else f"{speedup:.2f}x"


def duration_text(seconds: float | None) -> str:
    """``8s``, ``2m05s``, ``1h03m``; ``?`` for None."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def counted(number: int, one: str, several: str = "") -> str:
    """``1 row``, ``2 rows``; ``several`` is the plural where it is not ``one`` with an s."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def tried_text(outcomes: Mapping[Outcome, int] | Mapping[str, int], reused: int, estimated: bool) -> str:
    """``40 timed, 3 wrong; 5 from other studies``: what became of a study's trials, and how many were known."""
    return f"{outcomes_text(outcomes, estimated)}; {reused} from other studies"


def remeasure_command(estimated: bool) -> str:
    """What makes the missing results; estimates are made without a GPU."""
    return "tuner remeasure --estimated" if estimated else "tuner remeasure"


def outcomes_text(outcomes: Mapping[Outcome, int] | Mapping[str, int], estimated: bool = False) -> str:
    """``40 timed, 3 wrong``: the outcomes that occurred, timed first; ``none`` where none did.

    In a study without a GPU nothing is timed: what ended as ``timed`` there is called ``estimated``.
    """
    counts = {str(name): count for name, count in outcomes.items() if count}
    order = [str(Outcome.TIMED), *(str(o) for o in Outcome if o is not Outcome.TIMED)]
    shown = {str(Outcome.TIMED): "estimated"} if estimated else {}
    words = [f"{counts[name]} {shown.get(name, name)}" for name in order if name in counts]
    return ", ".join([*words, *(f"{n} {name}" for name, n in counts.items() if name not in order)]) or "none"
