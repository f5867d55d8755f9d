"""The problem and config on which the mutants of each template are checked."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutant import Setup

# As few batches as leave a persistent program several tiles.
_HEADS = {"batch": 8, "heads": 6, "kv_heads": 2}
# Two queries of each of two heads to a key/value head; in `single` and `split` head_dim is padded.
_CACHE = {"batch": 8, "heads": 4, "kv_heads": 2, "q_len": 2, "kv_len": 150}
_PACKED = {"batch": 12, "heads": 4, "kv_heads": 2, "max_len": 150, "max_kv_len": 250, "head_dim": 48}
_GRADIENTS = {"batch": 2, "heads": 6, "kv_heads": 2, "q_len": 150, "kv_len": 250}
_ROWS = {"rows": 300, "cols": 100, "row_stride": 130}
_TILED_ROWS = {"rows": 300, "cols": 2500, "row_stride": 2530}
_TILED_ROW = {**_TILED_ROWS, "rows": 1}
_SMOOTHED = {"label_smoothing": 0.125, "z_loss": 2.0**-9}
_LONG_ROWS = {"rows": 30, "cols": 8200, "row_stride": 8230}
_LONG_ROW = {**_LONG_ROWS, "rows": 1}  # the others add much time and little else

SETUPS: dict[str, dict[str, Setup]] = {
    "softmax": {
        "whole_row": Setup(_ROWS, "num_warps=1"),
        "several_rows": Setup(_ROWS, "ROWS_PER_PROGRAM=4,num_warps=1"),
        "persistent": Setup({"rows": 300, "cols": 200, "row_stride": 230}, "num_warps=2"),
        "online": Setup(_TILED_ROWS, "BLOCK_COLS=1024,num_warps=4"),
        "split_row": Setup(_LONG_ROWS, "BLOCK_COLS=1024,SPLITS=2,num_warps=4"),
    },
    "cross_entropy": {
        "whole_row": Setup(_ROWS, "num_warps=1"),
        # A row that is realigned, where there are others.
        "online": Setup(_TILED_ROW, "BLOCK_COLS=1024,num_warps=4", _SMOOTHED),
        "split_row": Setup(_LONG_ROW, "BLOCK_COLS=1024,SPLITS=4,num_warps=4", _SMOOTHED),
    },
    "cross_entropy_bwd": {
        "row_tiles": Setup(_TILED_ROW, "BLOCK_COLS=512,num_warps=1", _SMOOTHED),
        "row_loop": Setup(_TILED_ROW, "BLOCK_COLS=1024,num_warps=4", _SMOOTHED),
    },
    "attention_bwd": {
        # head_dim is padded here.
        "split": Setup(
            {**_GRADIENTS, "head_dim": 24},
            "KEYS_BLOCK_M=16,KEYS_BLOCK_N=32,QUERIES_BLOCK_M=32,QUERIES_BLOCK_N=16,num_warps=1,num_stages=1",
        ),
        "split_descriptor": Setup(
            {**_GRADIENTS, "head_dim": 32},
            "KEYS_BLOCK_M=32,KEYS_BLOCK_N=64,KEYS_WARPS=4,QUERIES_BLOCK_M=64,QUERIES_BLOCK_N=32,QUERIES_WARPS=4",
        ),
        "fused": Setup({**_GRADIENTS, "head_dim": 32}, "BLOCK_M=32,BLOCK_N=64,Q_STAGES=2,num_warps=4"),
    },
    "log_softmax": {
        "whole_row": Setup(_ROWS, "num_warps=1"),
        "online": Setup(_TILED_ROWS, "BLOCK_COLS=1024,num_warps=4"),
        "split_row": Setup(_LONG_ROW, "BLOCK_COLS=1024,SPLITS=2,num_warps=4"),
    },
    "logsumexp": {
        "whole_row": Setup(_ROWS, "num_warps=1"),
        "online": Setup(_TILED_ROWS, "BLOCK_COLS=1024,num_warps=4"),
        "split_row": Setup(_LONG_ROW, "BLOCK_COLS=1024,SPLITS=2,num_warps=4"),
    },
    "softmax_bwd": {
        "whole_row": Setup({"rows": 300, "cols": 600, "row_stride": 630}, "num_warps=1"),
        "two_pass": Setup(_TILED_ROWS, "BLOCK_COLS=1024,num_warps=4"),
    },
    "softmax_topk": {
        "whole_row": Setup({**_ROWS, "k": 3}, "num_warps=1"),
        "online": Setup({"rows": 1, "cols": 1300, "k": 3, "row_stride": 1330}, "BLOCK_COLS=512,num_warps=1"),
        "split_row": Setup({**_LONG_ROW, "k": 3}, "BLOCK_COLS=1024,SPLITS=2,num_warps=2"),
    },
    "attention_fwd": {
        # head_dim is padded here.
        "pointer": Setup(
            {**_HEADS, "q_len": 150, "kv_len": 250, "head_dim": 24}, "BLOCK_M=16,BLOCK_N=32,num_warps=1,num_stages=1"
        ),
        "descriptor": Setup(
            {**_HEADS, "q_len": 150, "kv_len": 250, "head_dim": 32}, "BLOCK_M=64,BLOCK_N=32,KV_STAGES=2,num_warps=4"
        ),
    },
    "attention_decode": {
        "single": Setup({**_CACHE, "head_dim": 48}, "BLOCK_N=32,num_warps=2,num_stages=2"),
        "split": Setup({**_CACHE, "head_dim": 48}, "SPLITS=2,BLOCK_N=32,num_warps=2,num_stages=2"),
        "descriptor": Setup({**_CACHE, "head_dim": 32}, "SPLITS=2,BLOCK_N=32,num_warps=4,num_stages=2"),
    },
    "attention_varlen": {
        "pointer": Setup(_PACKED, "BLOCK_M=16,BLOCK_N=32,num_warps=1,num_stages=1"),
        "searched": Setup(_PACKED, "BLOCK_M=16,BLOCK_N=32,num_warps=1,num_stages=1", {"causal": True}),
        "descriptor": Setup(
            {**_PACKED, "head_dim": 32}, "BLOCK_M=64,BLOCK_N=32,num_warps=4,num_stages=2", {"causal": True}
        ),
    },
}
CAUSAL_SHAPE: dict[str, int] = {"q_len": 250, "kv_len": 250}
"""As many queries as keys, as most models have; the check adds shapes with more of either."""


def options(causal: bool) -> dict[str, Any]:
    """The options of a causal attention, or none."""
    return {"causal": True} if causal else {}
