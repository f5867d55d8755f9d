"""Bugs of the softmax with top-k: of the order, of the search, of the sums and of what is written."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutant import Changes, Mutant, mutant
from tests.mutation.rewriting import Change
from tests.mutation.softmax_templates import HALF, INF, SHAPE

_TILED = ("online", "split_row")
_EVERY = ("whole_row", *_TILED)
_PARTIAL, _MERGE = "softmax_topk_split_partial_kernel", "softmax_topk_split_merge_kernel"
_LOAD = f"tl.load(x_row + any_c, mask=any_c < cols, other={INF}, **any_more)"
_FIRST = "first = tl.where(tops > m, tile, first)"
_ALPHA = "l * tl.exp2((m - m_safe) * LOG2E) + tl.sum(p, axis=1)"
_VALUE = "tl.exp2((_value(kept, DTYPE, WIDE) - any_m) * LOG2E)"
_INDEX = "tl.where(any_l == any_l, _place(kept, WIDE), any_s)"
_SEARCHED = "tl.reshape(_keys(x, col, WIDE), [SLOTS * GROUP])"


def _bug(name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = _TILED[:1], **more: Any) -> Mutant:
    return mutant("softmax_topk", name, breaks, changes, on, **more)


ORDER = (
    _bug(
        "negative_logits_in_reverse",
        "the bits of negative numbers are compared as they are",
        (
            Change("tl.where(bits < 0, -32768 - bits, bits)", "bits", function="_order"),
            Change("tl.where(order < 0, -32768 - order, order)", "order", function="_value"),
        ),
        ("whole_row",),
        dtypes=HALF,
    ),
    _bug(
        "minus_zero_below_zero",
        "-0.0 comes after 0.0, whatever their columns",
        (
            Change("-32768 - bits", "-32769 - bits", function="_order"),
            Change("-32768 - order", "-32769 - order", function="_value"),
        ),
        ("whole_row",),
        dtypes=HALF,
    ),
    _bug(
        "last_of_equals_first",
        "of equal elements the last column comes first",
        (Change("65535 - place", "place"), Change("65535 - (keys & 65535)", "keys & 65535")),
        ("whole_row",),
        dtypes=HALF,
    ),
    _bug(
        "last_of_equals_first_in_64_bits",
        "of equal elements the last column comes first",
        (
            Change("2147483647 - place", "place"),
            Change("2147483647 - (keys & 4294967295).to(tl.int32)", "(keys & 4294967295).to(tl.int32)"),
        ),
        ("whole_row",),
        dtypes=("fp32",),
    ),
    _bug("later_of_equal_maxima", "a lane keeps the last tile that its maximum is in", Change("tops > m", "tops >= m")),
    _bug(
        "tile_of_the_maximum_lost", "equal lanes are in the order of their lanes", Change(_FIRST, "first = first * 1")
    ),
    _bug(
        "ascending",
        "the least of the k comes first",
        Change("kept[None, :] > kept[:, None]", "kept[None, :] < kept[:, None]"),
    ),
    _bug(
        "no_rule_for_rows_without_probabilities",
        "a row of NaN has the columns of its largest elements",
        Change(_INDEX, "_place(kept, WIDE)"),
        ("whole_row",),
    ),
)

SEARCH = (
    _bug(
        "one_element_of_each_group",
        "of each group the largest element alone is found",
        Change(_SEARCHED, "tl.max(_keys(x, col, WIDE), axis=1)"),
        ("whole_row",),
    ),
    _bug(
        "columns_counted_in_the_group",
        "the columns are those of the group",
        Change(_SEARCHED, "tl.reshape(_keys(x, inner + 0 * col, WIDE), [SLOTS * GROUP])"),
        ("whole_row",),
    ),
    _bug(
        "columns_counted_in_the_tile",
        "the columns are those of the tile",
        Change("_keys(x, col, WIDE)", "_keys(x, col % BLOCK_COLS, WIDE)"),
        _TILED,
    ),
    _bug(
        "columns_counted_from_one",
        "each column is one too many",
        Change("_place(kept, WIDE)", "_place(kept, WIDE) + 1"),
        ("whole_row",),
    ),
    _bug(
        "first_tile_not_searched",
        "what is in the first tile is not found",
        Change("start + tl.arange(0, STEP)", "start + 1 + tl.arange(0, STEP)"),
    ),
    _bug(
        "only_the_largest",
        "nothing below the largest element is kept",
        Change("tl.min(best, axis=0)", "tl.max(best, axis=0)"),
    ),
    _bug(
        "one_lane_for_all",
        "the lane of the largest maximum is searched alone",
        Change("_place(best, WIDE) % LANES", "_place(tl.max(best, axis=0) + 0 * best, WIDE) % LANES"),
    ),
    _bug(
        "one_place_for_all",
        "each element found takes the place of the one before it",
        Change("tl.where(kept == least, top, kept)", "tl.where(slot == 0, top, kept)"),
    ),
    _bug(
        "found_twice",
        "each second element is what the one before it is",
        Change("slot == number", "slot >= number - number % 2", function="_largest"),
        ("whole_row",),
    ),
    _bug(
        "first_split_only",
        "the elements of the first split are taken for those of all",
        Change(
            "tl.arange(0, SPLITS * SLOTS)",
            "tl.arange(0, SPLITS * SLOTS) % SLOTS",
        ),
        ("split_row",),
    ),
)

SUMS = (
    _bug(
        "l_not_rescaled",
        "the running sum keeps the scale of an older maximum",
        Change(_ALPHA, "l + tl.sum(p, axis=1)"),
        _TILED,
    ),
    _bug(
        "alpha_in_base_2",
        "the rescaling forgets log2(e), the weights do not",
        Change("tl.exp2((m - m_safe) * LOG2E)", "tl.exp2(m - m_safe)", which=0),
    ),
    _bug(
        "weights_in_base_2",
        "the weights forget log2(e), the rescaling does not",
        Change("tl.exp2((logits - any_m) * LOG2E)", "tl.exp2(logits - any_m)"),
    ),
    _bug("block_maximum_not_carried", "the maximum is the last tile's alone", Change("tl.maximum(m, tops)", "tops")),
    _bug(
        "no_guard_on_an_empty_tile",
        "-inf - -inf where a lane has seen nothing yet",
        Change(f"tl.where(m_new == {INF}, 0.0, m_new)", "m_new"),
    ),
    _bug(
        "no_guard_on_an_empty_split",
        "-inf - -inf where a split has nothing but -inf",
        Change(f"tl.where(m_split == {INF}, 0.0, m_split)", "m_split"),
        ("split_row",),
        shape={"rows": 30},
    ),
    _bug(
        "splits_added_without_their_maxima",
        "the splits' sums are added as if they had one maximum",
        Change("l * tl.exp2((m - m_row) * LOG2E)", "l", function=_MERGE),
        ("split_row",),
    ),
    _bug(
        "lanes_added_without_their_maxima",
        "the lanes' sums are added as if they had one maximum",
        Change("l * tl.exp2((m - m_row) * LOG2E)", "l"),
    ),
    _bug(
        "ragged_tile_not_in_the_sum",
        "the ragged last tile is left out of the sum",
        Change("whole * BLOCK_COLS < cols", "whole * BLOCK_COLS < cols - BLOCK_COLS"),
    ),
    _bug(
        "sum_one_column_too_short",
        "the last column is not in the sum",
        Change(_LOAD, f"tl.load(x_row + any_c, mask=any_c < cols - 1, other={INF}, **any_more)", which=0),
        ("whole_row",),
    ),
    _bug(
        "tail_masked_with_a_sentinel",
        "columns past the end count as -1e4, which outweighs rows below it",
        Change(_LOAD, "tl.load(x_row + any_c, mask=any_c < cols, other=-1.0e4, **any_more)"),
    ),
    _bug(
        "load_not_masked",
        "reads past the end of a row",
        Change(_LOAD, "tl.load(x_row + any_c, **any_more)"),
        ("whole_row",),
    ),
)

WRITTEN = (
    _bug(
        "not_divided",
        "the weights are written without their sum",
        Change(f"{_VALUE} / any_l", f"{_VALUE} + 0.0 * any_l"),
        ("whole_row",),
    ),
    _bug(
        "output_in_base_2",
        "the sum has log2(e) in its weights, the output has not",
        Change(_VALUE, "tl.exp2(_value(kept, DTYPE, WIDE) - any_m)"),
        ("split_row",),
    ),
    _bug(
        "output_cut_off",
        "the output is cut off, not rounded",
        Change("y.to(values_ptr.dtype.element_ty)", 'y.to(values_ptr.dtype.element_ty, fp_downcast_rounding="rtz")'),
        ("whole_row",),
        dtypes=HALF,
    ),
    _bug(
        "everything_wrong_by_1_percent",
        "every probability is too large by 1 percent",
        Change("y.to(values_ptr.dtype.element_ty)", "(y * 1.01).to(values_ptr.dtype.element_ty)"),
        ("whole_row",),
    ),
    _bug(
        "last_not_written",
        "the k-th probability is not written",
        Change(
            "tl.store(values_ptr + at, any_y, mask=any_s < K)", "tl.store(values_ptr + at, any_y, mask=any_s < K - 1)"
        ),
        ("split_row",),
    ),
    _bug(
        "last_index_not_written",
        "the k-th index is not written",
        Change(
            "tl.store(indices_ptr + at, any_y, mask=any_s < K)", "tl.store(indices_ptr + at, any_y, mask=any_s < K - 1)"
        ),
    ),
    _bug(
        "stores_not_masked",
        "more than k indices are written, the last ones past the end",
        Change("tl.store(indices_ptr + at, any_y, mask=any_s < K)", "tl.store(indices_ptr + at, any_y)"),
        ("split_row",),
    ),
    _bug(
        "rows_of_another_length",
        "the rows of the output are as long as what was searched",
        Change("row * K + any_s", "row * SLOTS + any_s"),
        ("whole_row",),
    ),
    _bug(
        "input_stride_taken_for_columns",
        "rows of the input are read as if they had no gaps",
        Change("x.stride(0)", "cols"),
        ("whole_row",),
    ),
    _bug(
        "row_of_the_neighbour",
        "the next row is read",
        Change("any_r * x_row_stride", "(any_r + 1) * x_row_stride"),
        ("whole_row",),
    ),
    _bug(
        "one_program_too_few",
        "the last program is not launched",
        also={
            "whole_row": Change("softmax_topk_whole_row_kernel[(rows,)]", "softmax_topk_whole_row_kernel[(rows - 1,)]"),
            "split_row": Change(
                "softmax_topk_split_partial_kernel[(rows * SPLITS,)]",
                "softmax_topk_split_partial_kernel[(rows * SPLITS - 1,)]",
            ),
        },
    ),
    _bug(
        "input_changed",
        "launch() subtracts the maximum in place",
        Change(SHAPE, f"{SHAPE}\nx.sub_(x.amax(1, keepdim=True))"),
        ("whole_row",),
    ),
)

BUGS = (*ORDER, *SEARCH, *SUMS, *WRITTEN)
