"""Small shapes on which a config is checked, in the classes that Triton specialises a launch's integers on.

Triton compiles a kernel anew for integer arguments that equal 1, that are divisible by 16, and for all others. A small
problem whose lengths and strides fall in the same classes as the tuned problem's runs the very binary that is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tuner.operators.head_dims import dims_of_heads
from tuner.operators.stand_ins import like

_ALIGNED = 16
_MANY_TILES = 7  # errors that only later tiles show
# In the interpreter, which never runs the tuned shape, as many where the tuned problem has them.
_LONG_TILES = 64
_LONG_QUERY_TILES = 16  # each a program
_GROUPED_HEADS = 16


def integer_class(value: int) -> str:
    """``one``, ``aligned`` (divisible by 16) or ``other``: what Triton specialises on."""
    return "one" if value == 1 else "aligned" if value % _ALIGNED == 0 else "other"


def interpreted_row(cols: int) -> int:
    """``cols``, or of a row of more than 2^18 elements, which takes the interpreter minutes, so many and what it leaves
    after multiples of 2^14."""
    return like(cols, 2**14, 2**4)


def softmax_problems(
    sizes: Mapping[str, int], tiles: Mapping[str, int], max_tiles: Mapping[str, int], same_binary: bool
) -> list[dict[str, int]]:
    """Shapes for the row softmax: the first is the main one (three tiles and a tail where the template allows it)."""
    tile = tiles.get("cols", 1)
    limit = max_tiles.get("cols")
    wanted = integer_class(sizes["cols"])
    gap = sizes["row_stride"] - sizes["cols"]
    rows_tile = tiles.get("rows", 1)
    candidates: list[int | None]
    rows = _like(2 * rows_tile + 5, sizes["rows"], same_binary)
    if limit is not None:
        top = limit * tile
        lowest = (limit - 1) * tile + tile // 2  # a template of one block per row is compiled for (tile/2, tile]
        candidates = [_in_class(top - 3, lowest, top - 1, wanted), _in_class(lowest + 1, lowest, top, wanted), top]
    else:
        # A ragged tail after three tiles, one partial tile, three tiles as even as the class allows, and many tiles
        # with a lone column after them.
        candidates = [_ragged(3 * tile + max(1, tile // 3), tile, wanted), _ragged(max(1, tile // 2 + 1), tile, wanted)]
        candidates.append(_in_class(3 * tile, 0, None, wanted))
        candidates.append(_ragged(_MANY_TILES * tile + 1, tile, wanted))
    shapes = []
    for cols in dict.fromkeys(c for c in candidates if c is not None):
        if integer_class(cols) == wanted:
            shapes.append({"rows": rows, "cols": cols, "row_stride": _stride(cols, gap, sizes["row_stride"])})
    if limit is None and len(shapes) > 1:
        # Errors that need many tiles need few rows; the tuned row itself is there whatever the tiles are said to be.
        few = _like(min(3, rows), sizes["rows"], same_binary)
        shapes[-1]["rows"] = few
        cols = sizes["cols"] if same_binary else interpreted_row(sizes["cols"])
        shapes.append({"rows": few, "cols": cols, "row_stride": sizes["row_stride"] - sizes["cols"] + cols})
    return shapes or [{"rows": rows, "cols": sizes["cols"], "row_stride": sizes["row_stride"]}]


def attention_problems(
    sizes: Mapping[str, int],
    causal: bool,
    tiles: Mapping[str, int],
    max_tiles: Mapping[str, int],
    same_binary: bool,
) -> list[dict[str, int]]:
    """Shapes for attention: the main one; for causal problems more queries than keys, and as many; whole tiles; many
    tiles of keys, and of queries, with a lone one after them; and a single tile with more batches and heads."""
    q_tile, kv_tile = tiles.get("q_len", _ALIGNED), tiles.get("kv_len", _ALIGNED)
    heads, kv_heads = small_heads(sizes["heads"], sizes["kv_heads"], same_binary)
    dims = dims_of_heads(sizes)
    q_limit = max_tiles["q_len"] * q_tile if "q_len" in max_tiles else None
    kv_limit = max_tiles["kv_len"] * kv_tile if "kv_len" in max_tiles else None

    def q_length(about: int, ragged: bool = True, count: int = heads) -> int:
        fits = _fits(sizes["q_len"], dims.values(), sizes["heads"], count) if same_binary else _anything
        return _length(about, q_tile, q_limit, sizes["q_len"], fits, ragged)

    def kv_length(about: int, ragged: bool = True, count: int = kv_heads) -> int:
        fits = _fits(sizes["kv_len"], dims.values(), sizes["kv_heads"], count) if same_binary else _anything
        return _length(about, kv_tile, kv_limit, sizes["kv_len"], fits, ragged)

    keys = kv_length(3 * kv_tile + max(1, kv_tile // 3))
    queries = q_length(2 * q_tile + max(1, q_tile // 3))
    if causal:
        # More keys than queries: the diagonal crosses the tiles off their corners.
        keys = max(3 * kv_tile, queries + kv_tile) + max(1, kv_tile // 3)
        # A tile of keys ends one key beyond those that the first query of a tile sees: a tile too many shows.
        keys = kv_length(keys + (queries - 2 - keys) % kv_tile)
    lengths = [(queries, keys)]
    if causal:
        few = kv_length(kv_tile + max(1, kv_tile // 3))
        # More queries than keys by a whole query tile: the first tile's queries see nothing.
        lengths.append((q_length(few + q_tile + max(1, q_tile // 3)), few))
        if sizes["q_len"] == sizes["kv_len"]:
            even = q_length(max(2 * q_tile, 2 * kv_tile) + max(1, q_tile // 3))
            lengths.append((even, even))
    one_q, one_kv = q_length(max(1, q_tile // 3)), kv_length(max(1, kv_tile // 3))
    whole = (q_length(2 * q_tile, ragged=False), kv_length(3 * kv_tile, ragged=False))
    long = _MANY_TILES if same_binary else min(_LONG_TILES, max(_MANY_TILES, sizes["kv_len"] // kv_tile))
    many = _MANY_TILES if same_binary else min(_LONG_QUERY_TILES, max(_MANY_TILES, sizes["q_len"] // q_tile))
    lengths += [whole, (one_q, kv_length(long * kv_tile + 1)), (q_length(many * q_tile + 1), one_kv)]
    # One batch: what is kept of these shapes (inputs, references) must fit beside the tuned problem's for every tile
    # size. The last shape has more batches and heads.
    grouped = {"batch": 1, "heads": heads, "kv_heads": kv_heads, **dims}
    shapes = [{**grouped, "q_len": q, "kv_len": kv} for q, kv in dict.fromkeys(lengths)]
    if not same_binary:
        # In the interpreter every tile costs milliseconds, so the batch and the heads are left to the smallest shape.
        for shape in shapes:
            shape.update(heads=1, kv_heads=1)
    more, more_kv = several_groups(sizes["heads"], sizes["kv_heads"], same_binary)
    batches = 3 if more <= _GROUPED_HEADS else 2 if more <= 4 * _GROUPED_HEADS else 1
    last = {**grouped, "batch": min(sizes["batch"], batches)}
    last |= {"heads": more, "kv_heads": more_kv}
    last["q_len"] = q_length(max(1, q_tile // 3), count=more)
    last["kv_len"] = kv_length(max(1, kv_tile // 3), count=more_kv)
    if not same_binary:
        # No other shape there has several batches and heads whose second tiles must be their own.
        several = {**grouped, "batch": min(sizes["batch"], 2)}
        several["q_len"] = q_length(q_tile + max(1, q_tile // 3))
        several["kv_len"] = kv_length(kv_tile + max(1, kv_tile // 3))
        shapes.append(several)
    return [*shapes, last]


def decode_problems(
    sizes: Mapping[str, int], tiles: Mapping[str, int], max_tiles: Mapping[str, int], same_binary: bool
) -> list[dict[str, int]]:
    """Shapes for attention over a cache: three tiles of keys and a ragged tail, whole tiles, many tiles, and few keys
    of more sequences and heads. As many queries, heads to a key/value head and tokens to a page as tuned."""
    tile = tiles.get("kv_len", _ALIGNED)
    limit = max_tiles["kv_len"] * tile if "kv_len" in max_tiles else None

    def fits(length: int) -> bool:
        return not same_binary or integer_class(length) == integer_class(sizes["kv_len"])

    def length(about: int, ragged: bool = True) -> int:
        return _length(max(about, sizes["q_len"]), tile, limit, sizes["kv_len"], fits, ragged)

    long = min(_LONG_TILES, max(_MANY_TILES, sizes["kv_len"] // tile))
    heads, kv_heads = small_heads(sizes["heads"], sizes["kv_heads"], same_binary)
    if not same_binary:
        # In the interpreter every tile costs milliseconds: the sequences and heads are left to the smallest shape.
        heads, kv_heads = sizes["heads"] // sizes["kv_heads"], 1
    two = _like(2, sizes["batch"], same_binary) if same_binary else 1
    few = {**sizes, "heads": heads, "kv_heads": kv_heads, "batch": two}
    more, more_kv = several_groups(sizes["heads"], sizes["kv_heads"], same_binary)
    several = {"batch": _like(5, sizes["batch"], same_binary), "heads": more, "kv_heads": more_kv}
    # In the interpreter no other shape has several sequences, whose second tiles and pages must be their own.
    part = max(1, tile // 3) + (0 if same_binary else max(tile, sizes["page_size"]))
    return [
        {**few, "kv_len": length(3 * tile + max(1, tile // 3))},
        {**few, "kv_len": length(3 * tile, ragged=False)},
        {**few, "kv_len": length(long * tile + 1)},
        {**sizes, **several, "kv_len": length(part)},
    ]


def small_heads(heads: int, kv_heads: int, same_binary: bool, most: int = 2) -> tuple[int, int]:
    """Few heads with the tuned problem's grouping: at most ``most`` kv heads, where there is a choice.

    With ``same_binary`` heads, kv_heads and group stay in their classes; without it a group is smaller too.
    """
    group = heads // kv_heads
    if not same_binary:
        few = min(kv_heads, most)
        return few * min(group, most if kv_heads > 1 else 4), few
    wanted = (integer_class(heads), integer_class(kv_heads), integer_class(group))
    for kv in range(min(kv_heads, most), kv_heads + 1):
        if (integer_class(kv * group), integer_class(kv), wanted[2]) == wanted:
            return kv * group, kv
    return heads, kv_heads


def several_groups(heads: int, kv_heads: int, same_binary: bool) -> tuple[int, int]:
    """Several whole groups of heads: up to 4 and 16 heads, but two where there are two, however large a group is."""
    if same_binary:
        return small_heads(heads, kv_heads, same_binary, most=4)
    group = heads // kv_heads
    few = max(2, min(4, _GROUPED_HEADS // group))
    few -= few > 2 and (few - kv_heads) % 2  # as even or odd as tuned
    return min(kv_heads, few) * group, min(kv_heads, few)


def _stride(cols: int, gap: int, row_stride: int) -> int:
    """A row stride above ``cols`` in the class of the tuned one; ``cols`` itself where the tuned rows have no gap."""
    if gap == 0:
        return cols
    start = cols + min(gap, 2 * _ALIGNED)
    return next(s for s in range(start, start + 2 * _ALIGNED) if integer_class(s) == integer_class(row_stride))


def _like(about: int, tuned: int, same_binary: bool) -> int:
    """A count near ``about`` in the class of ``tuned`` (where the class matters)."""
    if tuned == 1:
        return 1
    if not same_binary or integer_class(tuned) == "other":
        return about if about % _ALIGNED else about + 1
    return -(-about // _ALIGNED) * _ALIGNED


def _ragged(about: int, tile: int, wanted: str) -> int:
    """A length at or above ``about`` of class ``wanted`` that no tile divides, where there is one."""
    if wanted == "one":
        return 1
    candidates = [n for n in range(max(2, about), about + 4 * _ALIGNED) if integer_class(n) == wanted]
    return next((n for n in candidates if n % tile), candidates[0])


def _in_class(about: int, above: int, top: int | None, wanted: str) -> int | None:
    """The length nearest to ``about`` in (above, top] of class ``wanted``."""
    high = about + 4 * _ALIGNED if top is None else top
    candidates = [n for n in range(max(above + 1, about - 4 * _ALIGNED), high + 1) if integer_class(n) == wanted]
    return min(candidates, key=lambda n: (abs(n - about), n), default=None)


def _fits(tuned: int, head_dims: Collection[int], tuned_heads: int, heads: int) -> Callable[[int], bool]:
    """Whether a small length keeps the classes of the length itself and of the strides that are made of it."""

    def classes(length: int, count: int) -> tuple[str, ...]:
        rows = (length, length * count)
        return tuple(integer_class(n) for n in (*rows, *(row * dim for dim in head_dims for row in rows)))

    wanted = classes(tuned, tuned_heads)
    return lambda length: classes(length, heads) == wanted


def _anything(length: int) -> bool:
    """The interpreter specialises on nothing, so any length will do there."""
    return length > 0


def _length(
    about: int, tile: int, limit: int | None, tuned: int, fits: Callable[[int], bool], ragged: bool = True
) -> int:
    """A length near ``about`` that ``fits``, within what the template can handle: ragged, or whole tiles if it can."""
    if tuned == 1:
        return 1
    if limit is not None:
        about = min(about, limit)
    lengths = range(max(2, about), about + 64) if limit is None else range(about, 1, -1)
    good = [n for n in lengths if fits(n)]
    wanted = [n for n in good if bool(n % tile) == ragged]
    fallback = min(max(2, about), limit or about)
    return wanted[0] if wanted else good[0] if good else fallback
