"""Winners of our attention kernel as a start for somebody else's: tiles, warps and stages, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.exports.entry import Entry, LeftOut
from tuner.operators import get, itemsize

# What the number of stages is called, by template; the first that a config has.
_STAGES = ("num_stages", "KV_STAGES")


@dataclass(frozen=True, order=True)
class Tiles:
    """What one attention forward kernel has in common with another. ``BLOCK_M`` queries, ``BLOCK_N`` keys."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class Seeds:
    """What attention's winners are as tiles. ``notes`` say where one of another template stands in for the winner."""

    found: list[tuple[Entry, Tiles]]
    left_out: list[LeftOut]
    notes: tuple[str, ...]


def attention_tiles(entries: Sequence[Entry]) -> Seeds:
    """The tiles of the attention winners in 16-bit formats; everything else is left out, and why.

    Where a winner's template has no tiles of this kind, the fastest of the entry's ``others`` that has some is taken.
    """
    found: list[tuple[Entry, Tiles]] = []
    left_out: list[LeftOut] = []
    notes: list[str] = []
    for entry in entries:
        what = f"{entry.problem.label} on {entry.device.name}"
        expressible = [(one, tiles) for one in (entry, *entry.others) if (tiles := _tiles(one)) is not None]
        why = ""
        if entry.problem.operator != "attention_fwd":
            why = "the format is for attention"
        elif itemsize(entry.problem.dtype) != 2:
            why = "the format is for 16-bit inputs"
        elif not get(entry.problem.operator).facts(entry.problem)["plain_attention"]:
            why = "the format is for attention of one head_dim, without windows and other features"
        elif not expressible:
            why = f"template {entry.winner.config.template} has no BLOCK_M, BLOCK_N, num_warps and stages"
        if why:
            left_out.append(LeftOut(what, why))
            continue
        found.append(expressible[0])
        taken = expressible[0][0]
        if taken is not entry:
            notes.append(
                f"{what}: the winner's template {entry.winner.config.template} has no such tiles; "
                f"in its place stands {taken.winner.record.verdict}"
            )
    return Seeds(found, left_out, tuple(notes))


def _tiles(entry: Entry) -> Tiles | None:
    values = entry.winner.config.values
    stages = next((values[name] for name in _STAGES if name in values), None)
    numbers = [values.get("BLOCK_M"), values.get("BLOCK_N"), values.get("num_warps"), stages]
    whole = [number for number in numbers if isinstance(number, int)]
    return Tiles(*whole) if len(whole) == len(numbers) else None
