"""Shapes that stand in for the tuned one in the interpreter, which never runs that.

The small problems of the check are made of a config's tiles alone. A kernel may be right on them and wrong at the
tuned shape for what that leaves after whole tiles, for its number of tiles, or because it has more programs than a GPU
has multiprocessors. These shapes have that of the tuned one, and are otherwise as small as they can be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tuner.operators.head_dims import dims_of_heads

# More programs than any GPU has multiprocessors, and a whole number of the groups in which programs are often taken.
_PROGRAMS, _GROUPS = 160, 32
_DEEP_TILES, _DEEP_QUERY_TILES = 64, 16
_FEW_PAIRS = 32  # of tiles; so many are as quick as anything else
_TILE = 16  # where nothing is said


def like(length: int, tile: int, most: int) -> int:
    """``length`` where that is at most ``most`` tiles, else as many and what it leaves after whole tiles."""
    return length if length <= most * tile else most * tile + length % tile


def crowd(count: int) -> int:
    """``count`` independent pieces of work, or the number near 160 that leaves as much in whole groups of 32."""
    return count if count < _PROGRAMS + _GROUPS else _PROGRAMS + count % _GROUPS


def attention_stand_ins(sizes: Mapping[str, int], tiles: Mapping[str, int]) -> list[dict[str, int]]:
    """Of attention: what both lengths, and their difference, leave after whole tiles; as many tiles of keys (64 at
    most), and of queries (16); and many programs, of the tuned parities."""
    q_tile, kv_tile = tiles.get("q_len", _TILE), tiles.get("kv_len", _TILE)
    q_len, kv_len = sizes["q_len"], sizes["kv_len"]
    both = math.lcm(q_tile, kv_tile)
    alone = {"batch": 1, "heads": 1, "kv_heads": 1, **dims_of_heads(sizes)}
    if -(-q_len // q_tile) * -(-kv_len // kv_tile) <= _FEW_PAIRS:
        lengths = [(q_len, kv_len)]
    else:
        lengths = [(like(q_len, both, 2 if q_len == kv_len else 1), like(kv_len, both, 2))]
    few_queries, few_keys = min(q_len, max(1, q_tile // 3)), min(kv_len, max(1, kv_tile // 3))
    lengths += [(few_queries, like(kv_len, kv_tile, _DEEP_TILES)), (like(q_len, q_tile, _DEEP_QUERY_TILES), few_keys)]
    heads, kv_heads = _few_heads(sizes)
    batch = min(sizes["batch"], _parity(-(-_PROGRAMS // heads), sizes["batch"]))
    query_tiles = min(-(-q_len // q_tile), -(-_PROGRAMS // (batch * heads)))
    crowded = {**alone, "batch": batch, "heads": heads, "kv_heads": kv_heads, "kv_len": few_keys}
    crowded["q_len"] = min(q_len, (query_tiles - 1) * q_tile + few_queries)
    return [*({**alone, "q_len": q, "kv_len": kv} for q, kv in lengths), crowded]


def decode_stand_ins(sizes: Mapping[str, int], tiles: Mapping[str, int]) -> list[dict[str, int]]:
    """Of attention over a cache: as many tiles of keys (64 at most) and what is left after them; and many sequences."""
    tile = tiles.get("kv_len", _TILE)
    heads, kv_heads = _few_heads(sizes)
    alone = {**sizes, "batch": 1, "heads": sizes["heads"] // sizes["kv_heads"], "kv_heads": 1}
    batch = min(sizes["batch"], _parity(-(-_PROGRAMS // kv_heads), sizes["batch"]))
    crowded = {**sizes, "batch": batch, "heads": heads, "kv_heads": kv_heads}
    few = min(sizes["kv_len"], max(sizes["q_len"], tile // 3))
    return [
        {**alone, "kv_len": max(sizes["q_len"], like(sizes["kv_len"], tile, _DEEP_TILES))},
        {**crowded, "kv_len": few},
    ]


def varlen_stand_ins(sizes: Mapping[str, int], tiles: Mapping[str, int]) -> list[dict[str, int]]:
    """Of attention over packed sequences: what the longest one's lengths leave after whole tiles, with as many tiles of
    keys (64 at most) and of queries (2); as many sequences (about 160) where those are many; and many programs."""
    q_tile, kv_tile = tiles.get("max_len", _TILE), tiles.get("max_kv_len", _TILE)
    q_len, kv_len = sizes["max_len"], sizes["max_kv_len"]
    few = {"max_len": min(q_len, 6), "max_kv_len": min(kv_len, 6)}  # whose sequences have few lengths
    alone = {"heads": 1, "kv_heads": 1, "head_dim": sizes["head_dim"]}
    deep = {"max_len": like(q_len, q_tile, 1), "max_kv_len": like(kv_len, kv_tile, _DEEP_TILES)}
    heads, kv_heads = _few_heads(sizes)
    batch = min(sizes["batch"], _parity(-(-_PROGRAMS // heads), sizes["batch"]))
    many = [{**alone, **few, "batch": crowd(sizes["batch"])}] if sizes["batch"] > batch else []
    crowded = {**alone, **few, "batch": batch, "heads": heads, "kv_heads": kv_heads}
    return [{**alone, **deep, "batch": 1}, *many, crowded]


def _few_heads(sizes: Mapping[str, int]) -> tuple[int, int]:
    """At most four kv heads, as even or odd as the tuned ones, and groups of two where they are larger."""
    group = sizes["heads"] // sizes["kv_heads"]
    kv_heads = min(sizes["kv_heads"], _parity(3, sizes["kv_heads"]))
    return kv_heads * min(group, _parity(2, group)), kv_heads


def _parity(about: int, tuned: int) -> int:
    """``about``, or one more where that is not as even or odd as ``tuned``."""
    return about + (about - tuned) % 2
