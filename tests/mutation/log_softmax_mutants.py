"""Bugs of log_softmax and logsumexp: of the running maximum and sum, of the logarithm, of masks, loops and launches."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutant import Changes, Mutant, mutant
from tests.mutation.rewriting import Change
from tests.mutation.softmax_templates import EXP2, HALF, INF, LOAD, NARROW, SHAPE, STORE, TILED

EVERY = ("whole_row", *TILED)
_FIRST_M, _FIRST_L = f"tl.full([LANES], {INF}, tl.float32)", "tl.zeros([LANES], tl.float32)"
_WALK = "tl.range(tl.program_id(0), rows, **any_more)"
_FULL_ROWS = {"row_stride": 3072, "cols": 3072}
_SEVERAL_ROWS = {"rows": 30}
_WHOLE = ("whole_row",)


def _log_softmax(name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = EVERY, **more: Any) -> Mutant:
    return mutant("log_softmax", name, breaks, changes, on, **more)


def _logsumexp(name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = EVERY, **more: Any) -> Mutant:
    return mutant("logsumexp", name, breaks, changes, on, **more)


# The running maximum and sum are spelt alike in both templates of both operators: one of each has their bugs.
_ONE_OF_EACH = {"log_softmax": ("online",), "logsumexp": ("split_row",)}


def _recurrence(name: str, breaks: str, changes: Changes, **more: Any) -> tuple[Mutant, ...]:
    return tuple(mutant(operator, name, breaks, changes, on, **more) for operator, on in _ONE_OF_EACH.items())


def _both(
    name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = EVERY, **more: Any
) -> tuple[Mutant, ...]:
    """One of each: their templates spell most things alike."""
    return (_log_softmax(name, breaks, changes, on, **more), _logsumexp(name, breaks, changes, on, **more))


RECURRENCE = (
    *_recurrence(
        "l_not_rescaled",
        "the running sum keeps the scale of an older maximum",
        Change("l * tl.exp(m - m_safe) + any_p", "l + any_p"),
    ),
    *_recurrence(
        "alpha_in_base_2",
        "the rescaling forgets log2(e), the weights do not",
        Change("l * tl.exp2((m - m_safe) * LOG2E) + any_p", "l * tl.exp2(m - m_safe) + any_p"),
        config=EXP2,
    ),
    *_both(
        "weights_in_base_2",
        "the weights forget log2(e)",
        Change("tl.exp2((logits - any_m) * LOG2E)", "tl.exp2(logits - any_m)"),
        ("whole_row",),
        config=EXP2,
    ),
    *_recurrence(
        "block_maximum_not_carried",
        "the maximum is the last tile's alone, so that alpha may exceed 1 and overflow",
        Change("tl.maximum(m, any_tile)", "any_tile"),
    ),
    _log_softmax(
        "no_guard_on_an_empty_tile",
        "-inf - -inf where a lane has seen nothing yet",
        Change(f"tl.where(m_new == {INF}, 0.0, m_new)", "m_new"),
        ("online",),
    ),
    _logsumexp(
        "no_guard_on_an_infinite_maximum",
        "-inf - -inf where a lane has seen nothing yet, inf - inf where it has seen +inf",
        Change('tl.where(tl.abs(any_m) == float("inf"), 0.0, any_m)', "any_m"),
        ("online",),
    ),
    _logsumexp(
        "no_guard_on_plus_infinity",
        "inf - inf where a lane has seen +inf",
        Change('tl.where(tl.abs(any_m) == float("inf"), 0.0, any_m)', f"tl.where(any_m == {INF}, 0.0, any_m)"),
        ("whole_row", "online"),
    ),
    *_both(
        "state_carried_into_the_next_row",
        "maximum and sum are not reset between the rows of one program",
        (
            Change(f"m = {_FIRST_M}", ""),
            Change(f"l = {_FIRST_L}", ""),
            Change("tiles = any_t", f"tiles = any_t\nm = {_FIRST_M}\nl = {_FIRST_L}"),
        ),
        ("online",),
    ),
    _logsumexp(
        "maximum_starts_at_zero",
        "rows that lie below -104 underflow",
        Change(_FIRST_M, _FIRST_L),
        ("split_row",),
    ),
    *_recurrence(
        "lanes_added_without_their_maxima",
        "the lanes' sums are added as if they had one maximum",
        Change("tl.sum(l * tl.exp(m - any_m), axis=0)", "tl.sum(l, axis=0)"),
    ),
    *_both(
        "parts_swapped",
        "a split's sum is read as its maximum, and its maximum as its sum",
        (Change("m = tl.load(part)", "m = tl.load(part + 1)"), Change("l = tl.load(part + 1)", "l = tl.load(part)")),
        ("split_row",),
    ),
    *_both(
        "splits_averaged",
        "the row's sum is the mean of the splits' sums",
        Change("l_row = tl.sum(any_l, axis=0)", "l_row = tl.sum(any_l, axis=0) / SPLITS"),
        ("split_row",),
    ),
)

LOGARITHM = (
    *_both(
        "log_in_base_2",
        "the logarithm of the sum is left in base 2",
        Change("tl.log2(any_l) * LN2", "tl.log2(any_l)"),
        ("whole_row", "online"),
        config=EXP2,
        classic=True,
    ),
    *_both(
        "base_2_log_under_exp",
        "the logarithm is of the wrong base",
        Change("tl.log(any_l)", "tl.log2(any_l)"),
        ("split_row",),
    ),
    _log_softmax(
        "sum_left_out", "the logarithm of the sum is not subtracted", Change("any_x - log_l", "any_x"), _WHOLE
    ),
    _logsumexp("sum_left_out", "the maximum alone", Change("m_safe + tl.log(any_l)", "m_safe"), _WHOLE),
    _log_softmax(
        "maximum_left_out",
        "the maximum is not subtracted",
        Change("any_x - any_m - log_l", "any_x - log_l"),
        _WHOLE,
    ),
    _logsumexp(
        "maximum_left_out", "the maximum is not added back", Change("m_safe + tl.log(any_l)", "tl.log(any_l)"), _WHOLE
    ),
    _log_softmax(
        "rounded_with_the_maximum",
        "m + log(l) is rounded to bf16 before it is subtracted",
        Change("any_x - any_m - log_l", "any_x - (any_m + log_l).to(tl.bfloat16).to(tl.float32)"),
        _WHOLE,
        dtypes=("fp16", "fp32"),
    ),
    _logsumexp(
        "lse_in_bf16",
        "the result is rounded to bf16",
        Change("tl.store(any_p, lse)", "tl.store(any_p, lse.to(tl.bfloat16).to(tl.float32))"),
        _WHOLE,
    ),
    *_both(
        "weights_in_bf16",
        "the sum is taken of weights that were rounded to bf16",
        Change("tl.exp(logits - any_m)", "tl.exp(logits - any_m).to(tl.bfloat16).to(tl.float32)"),
        _WHOLE,
        dtypes=("fp32",),
    ),
    _log_softmax(
        "output_through_fp16",
        "the output is rounded to fp16 on its way",
        Change(NARROW, "any_y.to(tl.float16).to(out_ptr.dtype.element_ty)"),
        _WHOLE,
        dtypes=("fp32",),
    ),
    _log_softmax(
        "halves_swapped",
        "the two 16-bit halves of a word change places",
        Change("low.to(tl.uint32) | (high.to(tl.uint32) << 16)", "high.to(tl.uint32) | (low.to(tl.uint32) << 16)"),
        ("whole_row",),
        config="HOLD_SHORT=true",
        shape={"cols": 600, "row_stride": 630},
        dtypes=HALF,
    ),
)

MASKS = (
    *_recurrence(
        "tail_masked_with_a_sentinel",
        "columns past the end count as -1e4, which outweighs rows below it",
        Change(LOAD, "tl.load(any_p, mask=any_m, other=-1.0e4, **any_more)"),
    ),
    *_both(
        "tail_loaded_as_zero",
        "columns past the end count as 0",
        Change(LOAD, "tl.load(any_p, mask=any_m, other=0.0, **any_more)"),
        ("whole_row", "online"),
    ),
    _log_softmax("load_not_masked", "reads past the end of a row", Change(LOAD, "tl.load(any_p, **any_more)"), _WHOLE),
    _log_softmax(
        "block_one_column_too_short",
        "the last column counts as -inf, and is not written",
        Change("inside = col < cols", "inside = col < cols - 1"),
        _WHOLE,
    ),
    _log_softmax(
        "store_not_masked",
        "writes past the end of a row",
        Change(STORE, "tl.store(any_p, any_y, **any_more)"),
        ("whole_row", "split_row"),
    ),
)

LOOPS = (
    *_both(
        "trip_count_rounded_down",
        "the ragged last tile is left out",
        also={
            "online": Change("tl.cdiv(cols, BLOCK_COLS)", "cols // BLOCK_COLS"),
            "split_row": Change("triton.cdiv(any_c, BLOCK_COLS)", "any_c // BLOCK_COLS"),
        },
    ),
    _log_softmax(
        "first_tile_not_in_the_sum",
        "the first pass starts at the second tile",
        Change(
            "tl.range(split * split_cols, **any_more)",
            "tl.range(split * split_cols + BLOCK_COLS, **any_more)",
            which=0,
        ),
        ("split_row",),
    ),
    _logsumexp(
        "last_tile_not_in_the_sum_where_it_is_full",
        "the first pass takes the last tile where it is ragged only",
        Change(
            "tl.range(0, tiles, **any_more)",
            "tl.range(0, (cols - 1) // BLOCK_COLS + tl.minimum(cols % BLOCK_COLS, 1), **any_more)",
            which=0,
        ),
        ("online",),
        shape=_FULL_ROWS,
    ),
    _log_softmax(
        "second_pass_off_by_one_tile",
        "the backward pass starts past the end and never reaches the first tile",
        Change("tiles - 1 - tile", "tiles - tile"),
        ("online",),
        config="REVERSE_SECOND_PASS=true",
    ),
    *_both(
        "last_row_left_out",
        "programs that walk over the rows stop one early",
        Change(_WALK, "tl.range(tl.program_id(0), rows - 1, **any_more)"),
        _WHOLE,
    ),
    *_both(
        "input_stride_taken_for_columns",
        "rows are read as if they had no gaps",
        Change("x.stride(0)", "cols"),
        ("whole_row", "split_row"),
        shape=_SEVERAL_ROWS,
    ),
    _log_softmax(
        "output_stride_taken_for_columns",
        "rows are written as if they had no gaps",
        Change("out.stride(0)", "cols"),
        ("whole_row", "split_row"),
        shape=_SEVERAL_ROWS,
    ),
    *_both(
        "row_of_the_neighbour",
        "the next row is read",
        Change("any_r * x_row_stride", "(any_r + 1) * x_row_stride"),
        _WHOLE,
    ),
    _logsumexp(
        "parts_of_the_first_row",
        "every row is merged from the first row's splits",
        Change("row * SPLITS + tl.arange(0, SPLITS)", "tl.arange(0, SPLITS)"),
        ("split_row",),
        shape=_SEVERAL_ROWS,
    ),
    _log_softmax(
        "input_changed",
        "launch() subtracts the maximum in place",
        Change(SHAPE, f"{SHAPE}\nx.sub_(x.amax(1, keepdim=True))"),
        _WHOLE,
    ),
    _log_softmax(
        "first_input_kept",
        "launch() computes the first input of each shape that it was given again and again",
        Change(SHAPE, f"{SHAPE}\nx = launch.__dict__.setdefault((x.shape, x.stride()), x.clone())"),
        ("whole_row",),
    ),
    *_both(
        "more_programs_than_rows",
        "programs without a row are launched",
        Change("min(rows, NUM_PROGRAMS)", "NUM_PROGRAMS + rows"),
        ("whole_row",),
        equivalent="a program whose first row is past the end does nothing",
    ),
)

MUTANTS = (*RECURRENCE, *LOGARITHM, *MASKS, *LOOPS)
