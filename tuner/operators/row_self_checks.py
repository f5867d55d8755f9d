"""Source text of the self-checks of log_softmax, logsumexp and softmax_bwd: as in ``tuner.operators.self_checks``."""

from __future__ import annotations

from tuner.numerics import FORMATS
from tuner.operators.self_checks import TORCH_NAMES
from tuner.problem import Problem

_MOST_ELEMENTS, _MOST_ROWS = 2**22, 64

_ROWS = """if __name__ == "__main__":
    import os
    import sys

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, cols, row_stride = {rows}, {cols}, {row_stride}
    torch.manual_seed(0)
{inputs}
    launch({tensors}, **CONFIG)
    # The reference: two passes in float64.
{reference}
    error = ({output}.double() - expected).abs()
    worst = int((error / tolerance).nan_to_num(nan=float("inf")).argmax())
    right = bool((error <= tolerance).all())
    # Triton's interpreter truncates to bf16 and multiplies its bits: there, an error in bf16 says nothing.
    judged = os.environ.get("TRITON_INTERPRET") != "1" or {given}.dtype != torch.bfloat16
    verdict = ("OK" if right else "WRONG") if judged else "not judged: bf16 needs a GPU, the interpreter gets it wrong"
    print(f"{operator} {{rows}} x {{cols}} on {{device}}: error {{error.flatten()[worst]:.3e}}, tolerance there "
          f"{{tolerance.flatten()[worst]:.3e}}: {{verdict}}")
    sys.exit(0 if right or not judged else 1)
"""
_MATRIX = """\
    {name} = torch.full((rows, row_stride), float("nan"), dtype={dtype}, device=device)[:, :cols]"""
_X = """\
    x = torch.randn(rows, row_stride, device=device).to({dtype})[:, :cols]
"""
_LSE = """\
    highest = x.double().amax(dim=1, keepdim=True)
    lse = highest + torch.exp(x.double() - highest).sum(dim=1, keepdim=True).log()
"""


def log_softmax_self_check(problem: Problem) -> str:
    """For files that define ``launch(x, out, **CONFIG)``: one rounding of the output, and 1e-5 for all of fp32."""
    out = FORMATS[problem.dtype]
    reference = _LSE + (
        "    expected = x.double() - lse\n"
        f"    tolerance = {out.u + 1e-5!r} * expected.abs() + {1e-5 + 2 * out.eta!r} * (1.0 + lse.abs())"
    )
    return _filled(problem, _X + _MATRIX.replace("{name}", "out"), "x, out", "out", reference)


def logsumexp_self_check(problem: Problem) -> str:
    """For files that define ``launch(x, out, **CONFIG)``, out [rows] in fp32: 1e-4, for the sum of a long row."""
    inputs = _X + '    out = torch.full((rows,), float("nan"), dtype=torch.float32, device=device)'
    reference = _LSE + "    expected = lse[:, 0]\n    tolerance = 1e-4 * (1.0 + expected.abs())"
    return _filled(problem, inputs, "x, out", "out", reference)


def softmax_bwd_self_check(problem: Problem) -> str:
    """For files that define ``launch(y, dy, dx, **CONFIG)``: one rounding of the output, and 1e-5 for all of fp32."""
    out = FORMATS[problem.dtype]
    inputs = (
        "    y = torch.full((rows, row_stride), 0.0, dtype={dtype}, device=device)[:, :cols]\n"
        "    y.copy_(torch.softmax(torch.randn(rows, cols, device=device), dim=1))\n"
        "    dy = torch.randn(rows, row_stride, device=device).to({dtype})[:, :cols]\n"
    )
    reference = (
        "    products = y.double() * dy.double()\n"
        "    expected = y.double() * (dy.double() - products.sum(dim=1, keepdim=True))\n"
        "    size = y.double().abs() * (dy.double().abs() + products.abs().sum(dim=1, keepdim=True))\n"
        f"    tolerance = {out.u!r} * expected.abs() + 1e-5 * size + {2 * out.eta + 1e-37!r}"
    )
    return _filled(problem, inputs + _MATRIX.replace("{name}", "dx"), "y, dy, dx", "dx", reference)


def _filled(problem: Problem, inputs: str, tensors: str, output: str, reference: str) -> str:
    """The block with the problem's columns, and as many rows as stay modest."""
    s = problem.sizes
    dtype = TORCH_NAMES[problem.dtype]
    return _ROWS.format(
        operator=problem.operator,
        rows=max(1, min(s["rows"], _MOST_ROWS, _MOST_ELEMENTS // s["cols"])),
        cols=s["cols"],
        row_stride=s["row_stride"],
        inputs=inputs.replace("{dtype}", dtype),
        tensors=tensors,
        given=tensors.partition(",")[0],
        output=output,
        reference=reference,
    )
