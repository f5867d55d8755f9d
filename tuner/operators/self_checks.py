"""Source text of the self-check at the end of a standalone file: plain torch, one tolerance, no part of this package.

The check that a config passed before it was timed is stricter (``tuner.checking``); this one lets whoever receives the
file see that it works where they are, on standard normal inputs. Its tolerance is the bound's main terms there: one
rounding to the output's format, one of the weights for attention, 1e-5 for all of fp32, and the format's floor.
"""

from __future__ import annotations

from tuner.numerics import FORMATS, FP8, output_dtype, product_sums
from tuner.operators.attention_features import Features
from tuner.problem import Problem

TORCH_NAMES = {"fp32": "torch.float32", "fp16": "torch.float16", "bf16": "torch.bfloat16", "fp8": "torch.float8_e4m3fn"}
_MOST_ELEMENTS = 2**22
_MOST_ROWS, _MOST_LENGTH = 64, 2048

_SOFTMAX = """if __name__ == "__main__":
    import os
    import sys

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, cols, row_stride = {rows}, {cols}, {row_stride}
    torch.manual_seed(0)
    x = torch.randn(rows, row_stride, device=device).to({dtype})[:, :cols]
    out = torch.full((rows, row_stride), float("nan"), dtype=x.dtype, device=device)[:, :cols]
    launch(x, out, **CONFIG)
    # The reference: two passes in float64.
    weights = torch.exp(x.double() - x.double().amax(dim=1, keepdim=True))
    expected = weights / weights.sum(dim=1, keepdim=True)
    tolerance = {relative!r} * expected + {floor!r}
    error = (out.double() - expected).abs()
    worst = int((error / tolerance).nan_to_num(nan=float("inf")).argmax())
    right = bool((error <= tolerance).all())
    # Triton's interpreter truncates to bf16 and multiplies its bits: there, an error in bf16 says nothing.
    judged = os.environ.get("TRITON_INTERPRET") != "1" or x.dtype != torch.bfloat16
    verdict = ("OK" if right else "WRONG") if judged else "not judged: bf16 needs a GPU, the interpreter gets it wrong"
    print(f"softmax {{rows}} x {{cols}} on {{device}}: error {{error.flatten()[worst]:.3e}}, tolerance there "
          f"{{tolerance.flatten()[worst]:.3e}}: {{verdict}}")
    sys.exit(0 if right or not judged else 1)
"""

# How attention's output and log-sum-exp are judged, from `expected`, `tolerance` and `expected_lse`; not of the dtype
# `unjudged`, called `it`, in the interpreter.
ATTENTION_JUDGED = """\
    error = (out.double() - expected).abs()
    lse_error = torch.where(expected_lse == lse, 0.0, (lse.double() - expected_lse).abs())
    lse_tolerance = {lse_tolerance!r} * (1.0 + expected_lse.abs().nan_to_num(posinf=0.0))
    worst = int((error / tolerance).nan_to_num(nan=float("inf")).argmax())
    right = bool((error <= tolerance).all()) and bool((lse_error <= lse_tolerance).all())
    # Triton's interpreter truncates to bf16 and multiplies its bits: there, an error in bf16 says nothing.
    judged = os.environ.get("TRITON_INTERPRET") != "1" or q.dtype != {unjudged}
    verdict = ("OK" if right else "WRONG") if judged else "not judged: {it} needs a GPU, the interpreter gets it wrong"
"""
_ATTENTION = (
    """if __name__ == "__main__":
    import os
    import sys

    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, heads, kv_heads, q_len, kv_len, head_dim = {batch}, {heads}, {kv_heads}, {q_len}, {kv_len}, {head_dim}
    scale = {scale!r}
    torch.manual_seed(0)
    q = torch.randn(batch, heads, q_len, head_dim, device=device).to({dtype})
    k = torch.randn(batch, kv_heads, kv_len, head_dim, device=device).to({dtype})
    v = torch.randn(batch, kv_heads, kv_len, {value_dim}, device=device).to({dtype})
{tensors}    out = torch.full_like({like_out}, float("nan"))
    lse = torch.full((batch, heads, q_len), float("nan"), device=device)
    launch(q, k, v, out, lse, scale=scale, {given}**CONFIG)
    # The reference: two passes in float64.
    keys, values = (t.double().repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
    logits = scale * (q.double() @ keys.transpose(2, 3))
{features}    expected_lse = {lse}
    weights = torch.exp(logits - expected_lse.masked_fill(expected_lse.isneginf(), 0.0)[..., None])
{dropped}    expected = weights @ values
    tolerance = {relative!r} * (weights @ values.abs()) + {floor!r}
"""
    + ATTENTION_JUDGED
    + """\
    print(f"attention {{batch}} x {{heads}} heads, {{q_len}} x {{kv_len}} x {{head_dim}} on {{device}}: "
          f"error {{error.flatten()[worst]:.3e}}, tolerance there {{tolerance.flatten()[worst]:.3e}}, "
          f"log-sum-exp error {{lse_error.max():.3e}}: {{verdict}}")
    sys.exit(0 if right or not judged else 1)
"""
)


def softmax_self_check(problem: Problem) -> str:
    """For files that define ``launch(x, out, **CONFIG)``: the problem's columns, as many rows as stay modest."""
    s = problem.sizes
    out = FORMATS[problem.dtype]
    return _SOFTMAX.format(
        rows=max(1, min(s["rows"], _MOST_ROWS, _MOST_ELEMENTS // s["cols"])),
        cols=s["cols"],
        row_stride=s["row_stride"],
        dtype=TORCH_NAMES[problem.dtype],
        relative=out.u + 1e-5,
        floor=2 * out.eta + 1e-37,
    )


def attention_self_check(problem: Problem, scale: float) -> str:
    """For files that define ``launch(q, k, v, out, lse, scale=..., **CONFIG)``: few heads, lengths up to 2048.

    A shortened length keeps its remainder, so that what the kernel assumes about divisibility holds.
    """
    s, features = problem.sizes, Features.of(problem.settings)
    numbers = features.scalars(bool(problem.settings["causal"]))
    out, fp8 = FORMATS[output_dtype(problem.dtype)], problem.dtype == FP8
    kv_heads = min(s["kv_heads"], 2)
    # fp32 products may be taken in tf32, which the file's header declares.
    u = FORMATS["tf32" if problem.dtype == "fp32" else problem.dtype].u
    scales = _SCALES if fp8 else ()
    words = {
        "heads": "heads" if features.bias in ("heads", "both") else 1,
        "of": "torch.bfloat16" if fp8 else "q.dtype",
    }
    made = (line.format(**words) for name, line in _TENSORS.items() if name in features.tensors)
    like_out = "q.new_empty(batch, heads, q_len, v.shape[3])" if "v_head_dim" in s else "q"
    if problem.dtype == "fp32":
        lse_tolerance = 4 * FORMATS["tf32"].u
    else:
        lse_tolerance = product_sums("8bit", s["head_dim"], 0.0) if fp8 else 1e-4
    return _ATTENTION.format(
        batch=1,
        heads=kv_heads * (s["heads"] // s["kv_heads"]),
        kv_heads=kv_heads,
        q_len=shortened(s["q_len"]),
        kv_len=shortened(s["kv_len"]),
        head_dim=s["head_dim"],
        value_dim=s.get("v_head_dim", "head_dim"),
        like_out="q.new_empty(batch, heads, q_len, v.shape[3], dtype=torch.bfloat16)" if fp8 else like_out,
        scale=scale,
        dtype=TORCH_NAMES[problem.dtype],
        features="".join(f"    {line}\n" for line in (*(_SCALED if fp8 else ()), *_logits(features))),
        given="".join(
            f"{n}={value}, " for n, value in (numbers | {n: n for n in (*scales, *features.tensors)}).items()
        ),
        tensors="".join(f"    {line}\n" for line in (*(_QUANTISED if fp8 else ()), *made)),
        dropped="" if features.dropout is None else _DROPPED.format(p=features.dropout),
        lse=_LSE_WITH_SINKS if features.sinks else "torch.logsumexp(logits, dim=-1)",
        relative=(2 if fp8 else 4) * u + 1e-5,
        floor=2 * out.eta + 1e-6,
        lse_tolerance=lse_tolerance,
        unjudged=TORCH_NAMES["fp8" if fp8 else "bf16"],
        it="fp8" if fp8 else "bf16",
    )


_SCALES = ("q_scale", "k_scale", "v_scale")
# Of fp8. With values of one sign the output is not small beside what the weights' rounding may do to it.
_QUANTISED = (
    "v = (v.float() + 2.0).to(v.dtype)",
    "q_scale, k_scale, v_scale = (torch.full((1,), x, device=device) for x in (0.5, 0.75, 1.25))",
)
_SCALED = ("logits = logits * (q_scale.double() * k_scale.double())", "values = values * v_scale.double()")
_TENSORS = {
    "bias": "bias = torch.randn(1, {heads}, q_len, kv_len, device=device).to({of})",
    "sinks": "sinks = torch.randn(heads, device=device)",
    "slopes": "slopes = 0.5 ** (1.0 + torch.arange(heads, device=device) % 8)",
    "dropout_seed": "dropout_seed = torch.tensor([0x123456789ABCDEF], device=device)",
}
_DROPPED = """\
    # Which weights stay: 16 bits of Philox4x32-10 of (key // 8, query, head, batch 0), in integers below 2^63.
    seed, threshold, word, half = int(dropout_seed), round({p!r} * 2**16), 0xFFFFFFFF, 0xFFFF
    counter = [torch.arange(-(-kv_len // 8), device=device), torch.arange(q_len, device=device)[:, None],
               torch.arange(heads, device=device)[:, None, None], torch.zeros_like(dropout_seed)]
    for turn in range(10):
        first, second = (seed + turn * 0x9E3779B9) & word, ((seed >> 32) + turn * 0xBB67AE85) & word
        upper, lower = zip(*((f * (c >> 16), f * (c & half)) for f, c in zip((0xD2511F53, 0xCD9E8D57), counter[::2])))
        high = [(u + (l >> 16)) >> 16 for u, l in zip(upper, lower)]
        low = [(((u & half) << 16) + l) & word for u, l in zip(upper, lower)]
        counter = [high[1] ^ counter[1] ^ first, low[1], high[0] ^ counter[3] ^ second, low[0]]
    halves = torch.stack([part for c in counter for part in (c & half, c >> 16)], dim=-1).flatten(-2)
    weights = weights * (halves[..., :kv_len] >= threshold) / (1.0 - {p!r})
"""
_LSE_WITH_SINKS = "torch.logaddexp(torch.logsumexp(logits, dim=-1), sinks.double()[:, None])"


def _logits(features: Features) -> list[str]:
    """What becomes of ``logits`` before they are weights, line by line."""
    caps = []
    if features.softcap is not None:
        caps.append(f"logits = {features.softcap!r} * torch.tanh(logits / {features.softcap!r})")
    away = ["logits = logits - slopes[:, None, None] * (key - place).abs()"] if features.alibi else []
    caps += ["logits = logits + bias.double()"] if "bias" in features.tensors else []
    ends = []
    if features.right is not None:
        ends.append(f'logits = logits.masked_fill(key > place + {features.right}, float("-inf"))')
    if features.left is not None:
        ends.append(f'logits = logits.masked_fill(key < place - {features.left}, float("-inf"))')
    places = [
        "place = torch.arange(q_len, device=device)[:, None] + kv_len - q_len",
        "key = torch.arange(kv_len, device=device)[None, :]",
    ]
    return [*caps, *places, *away, *ends] if away or ends else caps


def shortened(length: int) -> int:
    """``length``, or one between 1025 and 2048 with the same remainder by 1024."""
    return length if length <= _MOST_LENGTH else 1024 + (length % 1024 or 1024)
