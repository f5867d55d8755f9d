"""Source text of the self-check of a standalone file of the softmax with top-k; ``self_checks`` says what such are."""

from __future__ import annotations

from tuner.numerics import FORMATS
from tuner.operators.self_checks import TORCH_NAMES
from tuner.problem import Problem

_MOST_ELEMENTS, _MOST_ROWS = 2**22, 64

_TOPK = """if __name__ == "__main__":
    import os
    import sys

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, cols, k, row_stride = {rows}, {cols}, {k}, {row_stride}
    torch.manual_seed(0)
    x = torch.randn(rows, row_stride, device=device).to({dtype})[:, :cols]
    values = torch.full((rows, k), float("nan"), dtype=x.dtype, device=device)
    indices = torch.full((rows, k), -1, device=device)
    launch(x, values, indices, **CONFIG)
    # The reference: two passes in float64; of equal elements the first column first.
    probabilities = torch.softmax(x.double(), dim=1)
    expected_indices = torch.sort(x.double() + 0.0, dim=1, descending=True, stable=True).indices[:, :k]
    expected = probabilities.gather(1, expected_indices)
    tolerance = {relative!r} * expected + {floor!r}
    error = (values.double() - expected).abs()
    worst = int((error / tolerance).nan_to_num(nan=float("inf")).argmax())
    moved = int((indices != expected_indices).sum())
    right = bool((error <= tolerance).all()) and moved == 0
    # Triton's interpreter truncates to bf16: there, an error in bf16 says nothing.
    judged = os.environ.get("TRITON_INTERPRET") != "1" or x.dtype != torch.bfloat16
    verdict = ("OK" if right else "WRONG") if judged else "not judged: bf16 needs a GPU, the interpreter gets it wrong"
    print(f"softmax top {{k}} of {{rows}} x {{cols}} on {{device}}: error {{error.flatten()[worst]:.3e}}, tolerance "
          f"there {{tolerance.flatten()[worst]:.3e}}, {{moved}} wrong indices: {{verdict}}")
    sys.exit(0 if right or not judged else 1)
"""


def topk_self_check(problem: Problem) -> str:
    """For files that define ``launch(x, values, indices, **CONFIG)``: the problem's columns, and few rows."""
    s = problem.sizes
    out = FORMATS[problem.dtype]
    return _TOPK.format(
        rows=max(1, min(s["rows"], _MOST_ROWS, _MOST_ELEMENTS // s["cols"])),
        cols=s["cols"],
        k=s["k"],
        row_stride=s["row_stride"],
        dtype=TORCH_NAMES[problem.dtype],
        relative=out.u + 1e-5,
        floor=2 * out.eta + 1e-37,
    )
