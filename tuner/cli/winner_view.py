"""A winner and a study, printed for people."""

from __future__ import annotations

from tuner.cli.tables import print_facts
from tuner.store.records import StoredWinner
from tuner.wording import gain_text, interval_text, time_text


def print_winner(winner: StoredWinner) -> None:
    """What won, by how much, where it was measured and what it gains over the plain config."""
    print_facts(winner_facts(winner))


def winner_facts(winner: StoredWinner) -> list[tuple[str, object]]:
    """Names and values. Every time of an estimate is marked."""
    record = winner.record
    interval = interval_text(record.low_us, record.high_us)
    return [
        ("problem", winner.problem.label),
        ("device", winner.device.name),
        ("stack", winner.stack.label),
        ("winner", winner.config.label),
        ("time", f"{time_text(record.median_us, record.estimated)} {interval}".rstrip()),
        ("verdict", verdict_text(record.verdict, record.estimated)),
        ("plain config", time_text(record.plain_us, record.estimated) if record.plain_us is not None else None),
        ("gain", f"{gain_text(record.speedup)} over the plain config" if record.speedup is not None else None),
        ("study", winner.study_name),
        ("stored", f"{winner.created_at:%Y-%m-%d %H:%M} UTC"),
    ]


def verdict_text(verdict: str, estimated: bool) -> str:
    """A verdict; one that rests on estimates says so."""
    return f"{verdict} (estimated)" if estimated and verdict and "estimated" not in verdict else verdict
