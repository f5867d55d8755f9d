"""Source text of the self-check at the end of a standalone file of the backward pass: plain torch, one tolerance.

What it is for, and how it differs from the check before timing: ``self_checks``. Its tolerance is the bound's main
terms on standard normal inputs, against the magnitudes that are summed: the rounding of P and of dS where they enter a
product, and one of the gradient; 1e-5 for all of fp32; and the format's floor.
"""

from __future__ import annotations

from tuner.numerics import FORMATS
from tuner.operators.self_checks import TORCH_NAMES, shortened
from tuner.problem import Problem

_SOURCE = """if __name__ == "__main__":
    import os
    import sys

    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, heads, kv_heads, q_len, kv_len, head_dim = {batch}, {heads}, {kv_heads}, {q_len}, {kv_len}, {head_dim}
    scale = {scale!r}
    torch.manual_seed(0)
    q, dout = (torch.randn(batch, heads, q_len, head_dim, device=device).to({dtype}) for _ in range(2))
    k, v = (torch.randn(batch, kv_heads, kv_len, head_dim, device=device).to({dtype}) for _ in range(2))
    # The reference: two passes in float64.
    keys, values = (t.double().repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
    logits = scale * (q.double() @ keys.transpose(2, 3))
    if {causal}:
        query, key = torch.arange(q_len, device=device)[:, None], torch.arange(kv_len, device=device)[None, :]
        logits = logits.masked_fill(key > query + kv_len - q_len, float("-inf"))
    lse = torch.logsumexp(logits, dim=-1).float()
    weights = torch.exp(logits - lse.double().masked_fill(lse.isneginf(), 0.0)[..., None])
    out = (weights @ values).to({dtype})
    gradients = [torch.full_like(t, float("nan")) for t in (q, k, v)]
    launch(q, k, v, out, lse, dout, *gradients, scale=scale, **CONFIG)
    delta = (dout.double() * out.double()).sum(dim=-1, keepdim=True)
    dscores = scale * weights * (dout.double() @ values.transpose(2, 3) - delta)
    summed = [(dscores, keys), (dscores.transpose(2, 3), q.double()), (weights.transpose(2, 3), dout.double())]
    right = True
    for name, found, (left, factor) in zip(("dq", "dk", "dv"), gradients, summed):
        expected, size = left @ factor, left.abs() @ factor.abs()
        if name != "dq":
            expected, size = (t.unflatten(1, (kv_heads, -1)).sum(dim=2) for t in (expected, size))
        tolerance = {relative!r} * size + {floor!r}
        error = (found.double() - expected).abs()
        worst = int((error / tolerance).nan_to_num(nan=float("inf")).argmax())
        right = right and bool((error <= tolerance).all())
        print(f"{{name}}: error {{error.flatten()[worst]:.3e}}, tolerance there {{tolerance.flatten()[worst]:.3e}}")
    # Triton's interpreter truncates to bf16 and multiplies its bits: there, an error in bf16 says nothing.
    judged = os.environ.get("TRITON_INTERPRET") != "1" or q.dtype != torch.bfloat16
    verdict = ("OK" if right else "WRONG") if judged else "not judged: bf16 needs a GPU, the interpreter gets it wrong"
    print(f"attention backward {{batch}} x {{heads}} heads, {{q_len}} x {{kv_len}} x {{head_dim}} on {{device}}: "
          f"{{verdict}}")
    sys.exit(0 if right or not judged else 1)
"""


def attention_bwd_self_check(problem: Problem, scale: float) -> str:
    """For files that define ``launch(q, k, v, out, lse, dout, dq, dk, dv, scale=..., **CONFIG)``: few heads, lengths up
    to 2048 that keep their remainders."""
    s = problem.sizes
    out = FORMATS[problem.dtype]
    kv_heads = min(s["kv_heads"], 2)
    # fp32 products may be taken in tf32, which the file's header declares.
    u = FORMATS["tf32"].u if problem.dtype == "fp32" else out.u
    return _SOURCE.format(
        batch=1,
        heads=kv_heads * (s["heads"] // s["kv_heads"]),
        kv_heads=kv_heads,
        q_len=shortened(s["q_len"]),
        kv_len=shortened(s["kv_len"]),
        head_dim=s["head_dim"],
        scale=scale,
        dtype=TORCH_NAMES[problem.dtype],
        causal=bool(problem.settings["causal"]),
        relative=4 * u + 1e-5,
        floor=2 * out.eta + 1e-6,
    )
