"""Small shapes on which a config of attention over packed sequences is checked, with how their lengths are spread."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.operators.small_problems import integer_class, small_heads

_ALIGNED = 16
_MANY_TILES = 7  # as for attention; what stands in for the tuned shape has as many as that
# Sequences; the most of them are more than a program of ``searched`` looks at at a time.
_FEW, _SEVERAL, _MANY = 7, 35, 150


def varlen_problems(
    sizes: Mapping[str, int],
    lengths: str,
    tiles: Mapping[str, int],
    max_tiles: Mapping[str, int],
    same_binary: bool,
) -> list[tuple[dict[str, int], str]]:
    """Shapes and values of ``lengths``: the main one has lengths of 0, 1, a tile and one more or less; as the tuned
    one; many short sequences; and many tiles of keys, and of queries, with a lone one after them.

    With ``same_binary`` the numbers of heads and the longest lengths stay in the classes that Triton specialises on;
    the numbers of sequences and tokens, on which no template lets it specialise, do not.
    """
    limits = {axis: most * tiles.get(axis, _ALIGNED) for axis, most in max_tiles.items()}
    q_tile, kv_tile = tiles.get("max_len", _ALIGNED), tiles.get("max_kv_len", _ALIGNED)

    def length(axis: str, about: int) -> int:
        """Near ``about``: aligned, or one more than that."""
        about = min(about, limits.get(axis, about))
        wanted = integer_class(sizes[axis]) if same_binary else "other"
        if wanted == "one":
            return 1
        if wanted == "aligned":
            return -(-about // _ALIGNED) * _ALIGNED if axis not in limits else max(1, about // _ALIGNED) * _ALIGNED
        return max(2, about + (1 if about % _ALIGNED == 0 and axis not in limits else 0))

    def shape(batch: int, q_len: int, kv_len: int, heads: tuple[int, int]) -> dict[str, int]:
        few = {"batch": batch, "heads": heads[0], "kv_heads": heads[1]}
        long = {"max_len": length("max_len", q_len), "max_kv_len": length("max_kv_len", kv_len)}
        return {**few, **long, "head_dim": sizes["head_dim"]}

    grouped = small_heads(sizes["heads"], sizes["kv_heads"], same_binary)
    # In the interpreter every tile costs milliseconds, so the heads are left to two shapes.
    alone = grouped if same_binary else (1, 1)
    part_q, part_kv = max(1, q_tile // 3), max(1, kv_tile // 3)
    if sizes["max_len"] == sizes["max_kv_len"]:
        as_tuned = (max(q_tile, kv_tile) + part_q,) * 2
    else:
        as_tuned = (q_tile + part_q, 2 * kv_tile + part_kv)
    several = _MANY if same_binary and sizes["batch"] > _MANY else _SEVERAL
    return [
        # Half of the longest is a tile of queries, or two of keys.
        (shape(_FEW, 2 * q_tile, 4 * kv_tile, alone), "edges"),
        (shape(3, *as_tuned, grouped), lengths),
        (shape(several, min(4, part_q), min(4, part_kv), alone), "uniform"),
        (shape(1, part_q, _MANY_TILES * kv_tile + 1, alone), "equal"),
        (shape(1, 3 * q_tile + 1, part_kv, grouped), "equal"),
    ]
