"""For every input family a bug that falls on it when it is run alone, one that few other families see where there is.

``python -m benchmarks.mutants --every-family`` counts all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

WITNESSES: Mapping[str, Mapping[str, str]] = {
    "softmax": {
        "randn": "softmax/online/last_tile_not_in_the_sum_where_it_is_full/bf16",
        "masked": "softmax/online/guard_kept_as_the_maximum/bf16",
        "lowest": "softmax/several_rows/maximum_of_half_the_row/bf16",
        "plateau": "softmax/online/weights_in_bf16/bf16",
        "rising": "softmax/several_rows/small_outputs_flushed/bf16",
        "falling": "softmax/several_rows/difference_in_fp16/bf16",
        "very_negative": "softmax/online/tail_masked_with_a_sentinel/bf16",
        "one_hot": "softmax/online/maximum_starts_at_zero/bf16",
        "huge": "softmax/several_rows/maximum_of_all_rows/bf16",
        "constant": "softmax/online/one_column_wrong_by_3_percent/bf16",
        "tiny": "softmax/several_rows/one_column_wrong_by_3_percent/bf16",
        "nonfinite": "softmax/online/sum_carried_into_the_next_row/bf16",
    },
    "attention_fwd": {
        "randn": "attention_fwd/pointer/unmasked_without_the_diagonal/bf16",
        "rising": "attention_fwd/descriptor/acc_rescaled_twice/bf16",
        "falling_far": "attention_fwd/pointer/block_maximum_not_carried/bf16",
        "needle": "attention_fwd/descriptor/heads_by_modulo/bf16",
        "very_negative": "attention_fwd/pointer/masked_with_a_sentinel/bf16",
        "negative": "attention_fwd/pointer/maximum_before_the_mask/bf16",
        "coverage": "attention_fwd/descriptor/one_column_wrong_by_3_percent/bf16",
        "v_offset": "attention_fwd/descriptor/acc_in_bf16/bf16",
        "one_hot": "attention_fwd/pointer/maximum_not_scaled/bf16",
        "huge": "attention_fwd/descriptor/maximum_carried_into_the_next_tile/bf16",
        "equal_max": "attention_fwd/descriptor/acc_in_fp16/fp16",
        "constant": "attention_fwd/pointer/unmasked_one_key_too_far/bf16",
        "uniform": "attention_fwd/pointer/sum_of_rounded_weights/bf16",
        "tiny": "attention_fwd/pointer/maximum_starts_at_zero_and_sum_at_one/bf16",
        "nonfinite": "attention_fwd/descriptor/accumulator_carried_into_the_next_tile/bf16",
    },
    "attention_decode": {
        "randn": "attention_decode/single/unmasked_for_the_last_query/bf16",
        "short": "attention_decode/single/no_guard_on_an_empty_tile/bf16",
        "rising": "attention_decode/single/acc_not_rescaled/bf16",
        "falling_far": "attention_decode/single/block_maximum_not_carried/bf16",
        "needle": "attention_decode/single/heads_by_modulo/bf16",
        "very_negative": "attention_decode/single/maximum_starts_at_a_sentinel/bf16",
        "negative": "attention_decode/single/maximum_starts_at_zero/bf16",
        "coverage": "attention_decode/single/diagonal_lost/bf16",
        "v_offset": "attention_decode/single/sum_of_rounded_weights/bf16",
        "one_hot": "attention_decode/single/acc_not_rescaled/bf16",
        "huge": "attention_decode/single/block_maximum_not_carried/bf16",
        "equal_max": "attention_decode/single/sum_of_rounded_weights/bf16",
        "constant": "attention_decode/single/diagonal_lost/bf16",
        "uniform": "attention_decode/single/acc_in_bf16/bf16",
        "tiny": "attention_decode/single/one_key_too_far/bf16",
        "nonfinite": "attention_decode/single/weights_in_base_e/bf16",
    },
}
