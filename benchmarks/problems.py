"""The problems that the benchmarks run, and how long each is tuned."""

from __future__ import annotations

import tuner
from tuner.problem import Problem

SOFTMAX = [(4096, 1024), (4096, 4096), (4096, 32768), (8192, 131072)]
CROSS_ENTROPY = [*SOFTMAX, (16384, 50257), (8192, 128256), (128, 151936)]
# batch, heads, length, head_dim, causal
ATTENTION = [
    (4, 32, 4096, 128, False),
    (4, 32, 4096, 128, True),
    (4, 32, 4096, 64, True),
    (16, 32, 1024, 128, True),
    (1, 32, 16384, 128, True),
]
# batch, heads, length, head_dim, v_head_dim, causal, dropout
ATTENTION_FEATURES = [
    (1, 128, 4096, 192, 128, True, 0.0),
    (4, 32, 4096, 192, 128, True, 0.0),
    (4, 32, 4096, 192, 128, False, 0.0),
    (4, 32, 4096, 128, 64, True, 0.0),
    (4, 32, 4096, 128, 128, True, 0.17),
    (4, 32, 4096, 64, 64, True, 0.17),
    (4, 32, 4096, 128, 128, False, 0.17),
]
# batch, kv_len, page_size (0: not in pages); 32 query and 8 key/value heads of 128
DECODE = [(batch, kv_len, 0) for batch in (1, 8, 64) for kv_len in (4096, 32768, 131072)]
DECODE += [(64, 4096, 16), (8, 32768, 64)]
# batch, longest sequence's queries and keys, how lengths are spread, causal; 32 query and 8 key/value heads of 128
VARLEN = [
    (16, 4096, 4096, "equal", True),
    (32, 8192, 8192, "uniform", True),
    (32, 8192, 8192, "skewed", True),
    (256, 2048, 2048, "skewed", True),
    (32, 8192, 8192, "skewed", False),
    (32, 512, 16384, "skewed", True),
]

# rows, cols, k
TOPK = [(4096, 1024, 8), (4096, 4096, 8), (4096, 32768, 8), (8192, 131072, 8), (64, 131072, 8), (4, 131072, 8)]
TOPK += [(4096, 32768, 1), (4096, 32768, 64), (4096, 32768, 128)]


def softmax_problem(rows: int, cols: int, dtype: str = "bf16") -> Problem:
    """Softmax over ``cols``."""
    return tuner.make_problem("softmax", {"rows": rows, "cols": cols}, dtype)


def row_problem(operator: str, rows: int, cols: int, dtype: str = "bf16") -> Problem:
    """``log_softmax``, ``logsumexp`` or ``softmax_bwd`` over ``cols``."""
    return tuner.make_problem(operator, {"rows": rows, "cols": cols}, dtype)


def topk_problem(rows: int, cols: int, k: int, dtype: str = "bf16") -> Problem:
    """The k largest probabilities of the softmax over ``cols``."""
    return tuner.make_problem("softmax_topk", {"rows": rows, "cols": cols, "k": k}, dtype)


def attention_problem(batch: int, heads: int, length: int, head_dim: int, causal: bool, dtype: str = "bf16") -> Problem:
    """Self-attention."""
    shape = {"batch": batch, "heads": heads, "q_len": length, "head_dim": head_dim}
    return tuner.make_problem("attention_fwd", shape, dtype, {"causal": causal})


def attention_features_problem(
    batch: int,
    heads: int,
    length: int,
    head_dim: int,
    v_head_dim: int,
    causal: bool,
    dropout: float,
    dtype: str = "bf16",
) -> Problem:
    """Self-attention whose values may have a head_dim of their own, and whose weights may be dropped."""
    shape = {"batch": batch, "heads": heads, "q_len": length, "head_dim": head_dim, "v_head_dim": v_head_dim}
    return tuner.make_problem("attention_fwd", shape, dtype, {"causal": causal, "dropout": dropout})


def attention_bwd_problem(
    batch: int, heads: int, length: int, head_dim: int, causal: bool, dtype: str = "bf16"
) -> Problem:
    """The backward pass of self-attention."""
    shape = {"batch": batch, "heads": heads, "q_len": length, "head_dim": head_dim}
    return tuner.make_problem("attention_bwd", shape, dtype, {"causal": causal})


def decode_problem(batch: int, kv_len: int, page_size: int, dtype: str = "bf16") -> Problem:
    """One new token of each sequence over its cache."""
    shape = {"batch": batch, "heads": 32, "kv_heads": 8, "kv_len": kv_len, "head_dim": 128, "page_size": page_size}
    return tuner.make_problem("attention_decode", shape, dtype)


def varlen_problem(
    batch: int, max_len: int, max_kv_len: int, lengths: str, causal: bool, dtype: str = "bf16"
) -> Problem:
    """Attention over packed sequences."""
    shape = {"batch": batch, "heads": 32, "kv_heads": 8, "max_len": max_len, "max_kv_len": max_kv_len, "head_dim": 128}
    return tuner.make_problem("attention_varlen", shape, dtype, {"causal": causal, "lengths": lengths})


def cross_entropy_problem(rows: int, cols: int, operator: str = "cross_entropy", dtype: str = "bf16") -> Problem:
    """The cross-entropy over ``cols``, or with ``cross_entropy_bwd`` its gradient."""
    return tuner.make_problem(operator, {"rows": rows, "cols": cols}, dtype)
