"""Winners of our attention kernel as a start for somebody else's: tiles, warps and stages, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.exports.entry import Entry, LeftOut
from tuner.operators import get

# What the number of stages is called, by template; the first that a config has.
_STAGES = ("num_stages", "KV_STAGES")


@dataclass(frozen=True, order=True)
class Tiles:
    """What one attention forward kernel has in common with another. ``BLOCK_M`` queries, ``BLOCK_N`` keys."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


def attention_tiles(entries: Sequence[Entry]) -> tuple[list[tuple[Entry, Tiles]], list[LeftOut]]:
    """The tiles of the attention winners in 16-bit formats; everything else is left out, and why."""
    found: list[tuple[Entry, Tiles]] = []
    left_out: list[LeftOut] = []
    for entry in entries:
        values = entry.winner.config.values
        stages = next((values[name] for name in _STAGES if name in values), None)
        numbers = [values.get("BLOCK_M"), values.get("BLOCK_N"), values.get("num_warps"), stages]
        why = ""
        if entry.problem.operator != "attention_fwd":
            why = "the format is for attention"
        elif not get(entry.problem.operator).facts(entry.problem)["plain_attention"]:
            why = "the format is for attention without windows and other features"
        elif entry.problem.dtype == "fp32":
            why = "the format is for 16-bit inputs"
        elif not all(isinstance(number, int) for number in numbers):
            why = f"template {entry.winner.config.template} has no BLOCK_M, BLOCK_N, num_warps and stages"
        if why:
            left_out.append(LeftOut(f"{entry.problem.label} on {entry.device.name}", why))
        else:
            found.append((entry, Tiles(*(int(number) for number in numbers if number is not None))))
    return found, left_out
