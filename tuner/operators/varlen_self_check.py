"""Source text of the self-check of a standalone file of attention over packed sequences (``self_checks`` has more)."""

from __future__ import annotations

from tuner.numerics import FORMATS
from tuner.operators.self_checks import ATTENTION_JUDGED, TORCH_NAMES
from tuner.problem import Problem

_MOST_LENGTH = 600

_VARLEN = (
    """if __name__ == "__main__":
    import os
    import sys

    device = "cuda" if torch.cuda.is_available() else "cpu"
    heads, kv_heads, head_dim = {heads}, {kv_heads}, {head_dim}
    # Sequences without queries and without keys, and more queries than keys.
    lengths = {lengths}
    scale = {scale!r}
    torch.manual_seed(0)
    ends = [torch.tensor([0, *counts]).cumsum(0) for counts in zip(*lengths)]
    cu_seqlens_q, cu_seqlens_kv = (at.to(device=device, dtype=torch.int32) for at in ends)
    total_q, total_kv = (int(at[-1]) for at in ends)
    q = torch.randn(total_q, heads, head_dim, device=device).to({dtype})
    k = torch.randn(total_kv, kv_heads, head_dim, device=device).to({dtype})
    v = torch.randn(total_kv, kv_heads, head_dim, device=device).to({dtype})
    out = torch.full_like(q, float("nan"))
    lse = torch.full((heads, total_q), float("nan"), device=device)
    max_len = max(count for count, _ in lengths)
    launch(q, k, v, cu_seqlens_q, cu_seqlens_kv, out, lse, scale=scale, max_len=max_len, **CONFIG)
    # The reference: two passes in float64, one sequence after the other.
    expected = torch.zeros(total_q, heads, head_dim, dtype=torch.float64, device=device)
    size = torch.zeros_like(expected)
    expected_lse = torch.full((heads, total_q), float("-inf"), dtype=torch.float64, device=device)
    for at, (q_len, kv_len) in enumerate(lengths):
        if not q_len or not kv_len:
            continue
        mine = slice(int(ends[0][at]), int(ends[0][at + 1]))
        theirs = slice(int(ends[1][at]), int(ends[1][at + 1]))
        keys, values = (t[theirs].double().repeat_interleave(heads // kv_heads, dim=1).transpose(0, 1) for t in (k, v))
        logits = scale * (q[mine].double().transpose(0, 1) @ keys.transpose(1, 2))
        if {causal}:
            last = torch.arange(q_len, device=device)[:, None] + kv_len - q_len
            logits = logits.masked_fill(torch.arange(kv_len, device=device) > last, float("-inf"))
        sums = torch.logsumexp(logits, dim=-1)
        weights = torch.exp(logits - sums.masked_fill(sums.isneginf(), 0.0)[..., None])
        expected[mine] = (weights @ values).transpose(0, 1)
        size[mine] = (weights @ values.abs()).transpose(0, 1)
        expected_lse[:, mine] = sums
    tolerance = {relative!r} * size + {floor!r}
"""
    + ATTENTION_JUDGED
    + """\
    print(f"attention over packed sequences, {{len(lengths)}} of {{total_q}} queries and {{total_kv}} keys, {{heads}} "
          f"heads of {{head_dim}} on {{device}}: error {{error.flatten()[worst]:.3e}}, tolerance there "
          f"{{tolerance.flatten()[worst]:.3e}}, log-sum-exp error {{lse_error.max():.3e}}: {{verdict}}")
    sys.exit(0 if right or not judged else 1)
"""
)


def varlen_self_check(problem: Problem, scale: float) -> str:
    """For files that define ``launch(q, k, v, cu_seqlens_q, cu_seqlens_kv, out, lse, scale=..., max_len=..., ...)``.

    Seven short sequences and few heads.
    """
    s = problem.sizes
    out = FORMATS[problem.dtype]
    kv_heads = min(s["kv_heads"], 2)
    q_len, kv_len = min(s["max_len"], _MOST_LENGTH), min(s["max_kv_len"], _MOST_LENGTH)
    lengths = [
        (q_len, kv_len),
        (0, min(kv_len, 3)),
        (min(q_len, 3), 0),
        (1, 1),
        (min(q_len, 70), min(kv_len, 40)),
        (min(q_len, 64), kv_len),
        (q_len // 2 + 1, kv_len // 2 + 1),
    ]
    return _VARLEN.format(
        heads=kv_heads * (s["heads"] // s["kv_heads"]),
        kv_heads=kv_heads,
        head_dim=s["head_dim"],
        lengths=lengths,
        scale=scale,
        dtype=TORCH_NAMES[problem.dtype],
        unjudged=TORCH_NAMES["bf16"],
        it="bf16",
        causal=bool(problem.settings["causal"]),
        relative=4 * out.u + 1e-5,
        floor=2 * out.eta + 1e-6,
        lse_tolerance=1e-4,
    )
