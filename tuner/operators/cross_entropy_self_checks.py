"""Source text of the self-checks of the cross-entropy and its gradient: plain torch, as in ``self_checks``.

Each tolerance is the bound's main terms on standard normal logits: 1e-5 for all of fp32, and for the gradient one
rounding to its format and the format's floor.
"""

from __future__ import annotations

from tuner.numerics import FORMATS
from tuner.operators.self_checks import TORCH_NAMES
from tuner.problem import Problem

_MOST_ELEMENTS, _MOST_ROWS = 2**22, 64

_INPUTS = """if __name__ == "__main__":
    import os
    import sys

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, cols, row_stride = {rows}, {cols}, {row_stride}
    smoothing, z = {label_smoothing!r}, {z_loss!r}
    torch.manual_seed(0)
    logits = torch.randn(rows, row_stride, device=device).to({dtype})[:, :cols]
    targets = torch.randint(cols, (rows,), device=device)
    targets[1:2] = -100
    # The reference: two passes in float64.
    x, counts = logits.double(), targets >= 0
    m = x.amax(dim=1, keepdim=True)
    expected_lse = (m + torch.exp(x - m).sum(dim=1, keepdim=True).log())[:, 0]
    onehot = torch.arange(cols, device=device) == targets[:, None]
"""

_LOSS = (
    _INPUTS
    + """    at_target = torch.where(onehot, x, 0.0).sum(dim=1)
    expected_loss = expected_lse - (1 - smoothing) * at_target - smoothing * x.mean(dim=1) + z * expected_lse**2
    expected = torch.stack([torch.where(counts, expected_loss, 0.0), expected_lse])
    loss, lse = torch.full((2, rows), float("nan"), device=device)
    launch(logits, targets, loss, lse, label_smoothing=smoothing, z_loss=z, **CONFIG)
    tolerance = 1e-5 * (1.0 + (1.0 + z * expected_lse.abs()) * expected_lse.abs()).expand(2, rows)
    error = (torch.stack([loss, lse]).double() - expected).abs()
"""
)

_GRADIENT = (
    _INPUTS
    + """    lse, grad = expected_lse.float(), torch.randn(rows, device=device)
    factor = torch.where(counts, grad.double(), 0.0)[:, None]
    weights = torch.exp(x - lse.double()[:, None]) * (1 + 2 * z * lse.double()[:, None])
    expected = factor * (weights - (1 - smoothing) * onehot - smoothing / cols)
    dlogits = torch.full((rows, row_stride), float("nan"), dtype=logits.dtype, device=device)[:, :cols]
    launch(logits, targets, lse, grad, dlogits, label_smoothing=smoothing, z_loss=z, **CONFIG)
    tolerance = {relative!r} * factor.abs() * (weights.abs() + onehot + smoothing / cols) + {floor!r}
    error = (dlogits.double() - expected).abs()
"""
)

_VERDICT = """    worst = int((error / tolerance).nan_to_num(nan=float("inf")).argmax())
    right = bool((error <= tolerance).all())
    # Triton's interpreter truncates to bf16 and computes with its bits: there, an error in bf16 says nothing.
    judged = os.environ.get("TRITON_INTERPRET") != "1" or logits.dtype != torch.bfloat16
    verdict = ("OK" if right else "WRONG") if judged else "not judged: bf16 needs a GPU, the interpreter gets it wrong"
    print(f"{name} {{rows}} x {{cols}} on {{device}}: error {{error.flatten()[worst]:.3e}}, tolerance there "
          f"{{tolerance.flatten()[worst]:.3e}}: {{verdict}}")
    sys.exit(0 if right or not judged else 1)
"""


def loss_self_check(problem: Problem, label_smoothing: float, z_loss: float) -> str:
    """For files that define ``launch(logits, targets, loss, lse, label_smoothing=..., z_loss=..., **CONFIG)``."""
    return _filled(_LOSS + _VERDICT, problem, label_smoothing, z_loss)


def gradient_self_check(problem: Problem, label_smoothing: float, z_loss: float) -> str:
    """For files that define ``launch(logits, targets, lse, grad, dlogits, ...)`` with the same keyword arguments."""
    return _filled(_GRADIENT + _VERDICT, problem, label_smoothing, z_loss)


def _filled(text: str, problem: Problem, label_smoothing: float, z_loss: float) -> str:
    """The problem's columns, as many rows as stay modest; the second one is ignored."""
    s = problem.sizes
    out = FORMATS[problem.dtype]
    return text.format(
        name=problem.operator,
        rows=max(1, min(s["rows"], _MOST_ROWS, _MOST_ELEMENTS // s["cols"])),
        cols=s["cols"],
        row_stride=s["row_stride"],
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        dtype=TORCH_NAMES[problem.dtype],
        relative=out.u + 1e-5,
        floor=2 * out.eta + 1e-37,
    )
