"""What the attention templates have in common, for the modules that plant bugs in them."""

from __future__ import annotations

from typing import Any

from tests.mutation.mutant import Changes, Mutant, mutant

BOTH = ("pointer", "descriptor")
BASE_E = "USE_EXP2=false"
HALF = ("bf16", "fp16")

INF = 'float("-inf")'
FIRST_M = f"tl.full([BLOCK_M], {INF}, tl.float32)"
FIRST_L = "tl.zeros([BLOCK_M], tl.float32)"
MASK = f"tl.where(visible, x * qk_scale, {INF})"
GUARD = f"tl.where(m_new == {INF}, 0.0, m_new)"
DEAD = "tl.where(l == 0.0, 1.0, l)"
SCALE = "scale * LOG2E if USE_EXP2 else scale"
DIVIDED = "acc / l_safe[:, None]"
SUM = "l = l * alpha + tl.sum(p, axis=1)"
PV = "acc = tl.dot(p.to(v.dtype), v, acc, **any_more)"
QK = "tl.dot(q, any_k, **any_more)"
UNMASKED = "tl.maximum(unmasked, 0) // BLOCK_N * BLOCK_N"
KEYS = "tl.range(start, end, BLOCK_N, **any_more)"
LSE = "tl.store(any_p, lse, mask=query < q_len)"
OUT = "tl.store(any_p, out, mask=inside)"
SHAPE = "batch, heads, q_len, head_dim = q.shape"


def attention(name: str, breaks: str, changes: Changes = (), on: tuple[str, ...] = BOTH, **more: Any) -> Mutant:
    """A mutant of attention forward, of both templates where none is named."""
    return mutant("attention_fwd", name, breaks, changes, on, **more)
