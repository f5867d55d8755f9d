"""Source text of the self-check of a standalone file of attention over a cache; ``self_checks`` says what such are."""

from __future__ import annotations

from tuner.numerics import FORMATS
from tuner.operators.self_checks import TORCH_NAMES, shortened
from tuner.problem import Problem

_DECODE = """if __name__ == "__main__":
    import os
    import sys

    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, heads, kv_heads, q_len, kv_len, head_dim = 2, {heads}, {kv_heads}, {q_len}, {kv_len}, {head_dim}
    page_size = {page_size}
    scale = {scale!r}
    torch.manual_seed(0)
    q = torch.randn(batch, heads, q_len, head_dim, device=device).to({dtype})
    k = torch.randn(batch, kv_heads, kv_len, head_dim, device=device).to({dtype})
    v = torch.randn(batch, kv_heads, kv_len, head_dim, device=device).to({dtype})
    seq_lens = torch.tensor([kv_len, max(q_len, 2 * kv_len // 3)], dtype=torch.int32, device=device)
    # What the cache holds beyond a sequence's length must not matter.
    beyond = (torch.arange(kv_len, device=device) >= seq_lens[:, None])[:, None, :, None]
    cache = [t.masked_fill(beyond, float("nan")) for t in (k, v)]
    if page_size:
        pages = -(-kv_len // page_size)
        block_table = torch.randperm(batch * pages, device=device).view(batch, pages).to(torch.int32)
        for at, tokens in enumerate(cache):
            full = torch.nn.functional.pad(tokens, (0, 0, 0, pages * page_size - kv_len))
            full = full.unflatten(2, (pages, page_size)).permute(0, 2, 3, 1, 4)
            cache[at] = torch.empty_like(full.flatten(0, 1))
            cache[at][block_table.long()] = full
    tables = {{"block_table": block_table}} if page_size else {{}}
    out = torch.full_like(q, float("nan"))
    lse = torch.full((batch, heads, q_len), float("nan"), device=device)
    launch(q, *cache, seq_lens, out, lse, **tables, scale=scale, **CONFIG)
    # The reference: two passes in float64.
    keys, values = (t.masked_fill(beyond, 0.0).double().repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
    last = torch.arange(q_len, device=device) + seq_lens[:, None] - q_len
    unseen = torch.arange(kv_len, device=device) > last[..., None]
    logits = (scale * (q.double() @ keys.transpose(2, 3))).masked_fill(unseen[:, None], float("-inf"))
    expected_lse = torch.logsumexp(logits, dim=-1)
    weights = torch.exp(logits - expected_lse[..., None])
    expected = weights @ values
    tolerance = {relative!r} * (weights @ values.abs()) + {floor!r}
    error = (out.double() - expected).abs()
    lse_error = (lse.double() - expected_lse).abs()
    worst = int((error / tolerance).nan_to_num(nan=float("inf")).argmax())
    lse_tolerance = {lse_tolerance!r} * (1.0 + expected_lse.abs())
    right = bool((error <= tolerance).all()) and bool((lse_error <= lse_tolerance).all())
    # Triton's interpreter truncates to bf16 and multiplies its bits: there, an error in bf16 says nothing.
    judged = os.environ.get("TRITON_INTERPRET") != "1" or q.dtype != torch.bfloat16
    verdict = ("OK" if right else "WRONG") if judged else "not judged: bf16 needs a GPU, the interpreter gets it wrong"
    print(f"attention over a cache, {{batch}} x {{heads}} heads, {{q_len}} x {{kv_len}} x {{head_dim}} on {{device}}: "
          f"error {{error.flatten()[worst]:.3e}}, tolerance there {{tolerance.flatten()[worst]:.3e}}, "
          f"log-sum-exp error {{lse_error.max():.3e}}: {{verdict}}")
    sys.exit(0 if right or not judged else 1)
"""


def decode_self_check(problem: Problem, scale: float) -> str:
    """For files that define ``launch(q, k, v, seq_lens, out, lse, [block_table], scale=..., **CONFIG)``.

    Two sequences and few heads, of at most 2048 tokens.
    """
    s = problem.sizes
    out = FORMATS[problem.dtype]
    kv_heads = min(s["kv_heads"], 2)
    return _DECODE.format(
        heads=kv_heads * (s["heads"] // s["kv_heads"]),
        kv_heads=kv_heads,
        q_len=s["q_len"],
        kv_len=shortened(s["kv_len"]),
        head_dim=s["head_dim"],
        page_size=s["page_size"],
        scale=scale,
        dtype=TORCH_NAMES[problem.dtype],
        relative=4 * out.u + 1e-5,
        floor=2 * out.eta + 1e-6,
        lse_tolerance=1e-4,
    )
