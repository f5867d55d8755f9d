"""The callables of the other operators: in Triton's interpreter against torch, tuned and not, and for torch.compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.exports.stored_winners import store_winner
from tests.exports.test_python_package import run_package
from tuner.exports.python_operators import CALLABLES
from tuner.operators import get

pytestmark = pytest.mark.slow

ROWS = {"rows": 6, "cols": 100}
HEADS = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 24, "kv_len": 40, "head_dim": 16}
WINNERS = [
    ("log_softmax", ROWS, {}, "template=whole_row"),
    ("logsumexp", ROWS, {}, "template=online"),
    ("softmax_bwd", ROWS, {}, "template=whole_row"),
    ("softmax_topk", {**ROWS, "k": 3}, {}, "template=whole_row"),
    ("cross_entropy", ROWS, {}, "template=whole_row"),
    ("cross_entropy", ROWS, {"label_smoothing": 0.1}, "template=online"),
    ("cross_entropy_bwd", ROWS, {}, "template=row_tiles"),
    ("attention_bwd", HEADS, {"causal": True}, "template=split"),
    ("attention_decode", {**HEADS, "q_len": 2}, {}, "template=single"),
]

START = """
kernels.use_device("NVIDIA H200")
g = torch.Generator().manual_seed(0)
half = torch.float16

def randn(*shape, dtype=half):
    return torch.randn(*shape, generator=g).to(dtype)

def off(got, want):
    got, want = got.double(), want.double()
    assert got.shape == want.shape, (got.shape, want.shape)
    assert torch.equal(got.isfinite(), want.isfinite())
    return (got - want).nan_to_num(0.0, 0.0, 0.0).abs().max().item()

def losses(x, t, e, z):
    lse = torch.logsumexp(x, -1)
    loss = torch.nn.functional.cross_entropy(x, t, reduction="none", label_smoothing=e) + z * lse**2 * (t != -100)
    return loss, lse

def attend(q, k, v, mask):
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = (q @ k.transpose(2, 3) * q.shape[3] ** -0.5).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, -1).nan_to_num(0.0) @ v, torch.logsumexp(scores, -1)
"""

RIGHT = """
def rows_errors(cols, dtype=half):
    x, y = randn(2, 3, cols, dtype=dtype), torch.softmax(randn(2, 3, cols), -1).to(dtype)
    wide, found = x.double(), {}
    found["log_softmax"] = off(kernels.log_softmax(x), torch.log_softmax(wide, -1))
    found["logsumexp"] = off(kernels.logsumexp(x), torch.logsumexp(wide, -1))
    a, b = y.double(), wide
    found["softmax_bwd"] = off(kernels.softmax_bwd(y, x), a * (b - (a * b).sum(-1, keepdim=True)))
    x[0, 0, 5] = x[0, 0, 2] = x.max() + 1  # equal ones come in the order of their columns
    values, places = kernels.softmax_topk(x, 3)
    order = torch.sort(x, dim=-1, descending=True, stable=True).indices[..., :3]
    assert torch.equal(places, order)
    found["softmax_topk"] = off(values, torch.softmax(x.double(), -1).gather(-1, order))
    t = torch.tensor([[0, -100, cols - 1], [3, 2, 1]])
    for e, z in ((0.0, 0.0), (0.0, 1e-2), (0.2, 1e-2)):
        inputs = x.double().clone().requires_grad_()
        loss, lse = losses(inputs.view(-1, cols), t.view(-1), e, z)
        got = kernels.cross_entropy(x, t, e, z)
        found[f"loss {e} {z}"] = max(off(got[0], loss.detach().view(2, 3)), off(got[1], lse.detach().view(2, 3)))
        grad = torch.randn(2, 3, generator=g).to(got[1].dtype)
        (loss * grad.double().view(-1)).sum().backward()
        dlogits = kernels.cross_entropy_bwd(x, t, got[1], grad, e, z)
        found[f"dlogits {e} {z}"] = off(dlogits, inputs.grad)
    return found

def bwd_errors(q_len, kv_len, causal, dtype=half):
    q, dout = randn(2, 4, q_len, 16, dtype=dtype), randn(2, 4, q_len, 16, dtype=dtype)
    k, v = randn(2, 2, kv_len, 16, dtype=dtype), randn(2, 2, kv_len, 16, dtype=dtype)
    mask = torch.ones(q_len, kv_len, dtype=torch.bool)
    mask = mask.tril(kv_len - q_len) if causal else mask
    inputs = [x.double().requires_grad_() for x in (q, k, v)]
    out, lse = attend(*inputs, mask)
    out.nan_to_num(0.0).backward(dout.double())
    got = kernels.attention_bwd(q, k, v, out.detach().to(dtype), lse.detach().float(), dout, causal)
    return max(off(a, b.grad.nan_to_num(0.0)) for a, b in zip(got, inputs))

def decode_errors(kv_len, lens, dtype=half):
    q = randn(2, 4, 2, 16, dtype=dtype)
    k, v = randn(2, 2, kv_len, 16, dtype=dtype), randn(2, 2, kv_len, 16, dtype=dtype)
    lens = torch.tensor(lens, dtype=torch.int32)
    for cache in (k, v):
        for b, n in enumerate(lens.tolist()):
            cache[b, :, n:] = float("nan")
    seen = torch.arange(kv_len) <= (torch.arange(2) + lens[:, None] - 2)[..., None]
    out, lse = attend(q.double(), k.double().nan_to_num(0.0), v.double().nan_to_num(0.0), seen[:, None])
    got = kernels.attention_decode(q, k, v, lens)
    return max(off(got[0], out), off(got[1], lse))

exact = [kernels.best("cross_entropy", half, (6, 100), (smooth,), -1).variant for smooth in (None, True)]
errors = {"rows": rows_errors(100), "wider": rows_errors(300)}
errors["attention"] = {
    "bwd": bwd_errors(24, 40, True), "bwd other": bwd_errors(17, 33, True), "decode": decode_errors(40, [40, 21]),
    "decode other": decode_errors(70, [1, 66]),
}
chosen = {
    op: repr(kernels.best(op, half, shape, options, -1))
    for op, shape, options in (
        ("log_softmax", (6, 100), ()), ("logsumexp", (6, 300), ()), ("softmax_topk", (6, 100, 3), ()),
        ("attention_bwd", (2, 4, 2, 24, 40, 16), (True, False)), ("attention_decode", (2, 4, 2, 2, 70, 16), ()),
    )
}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    by_torch = {"rows": rows_errors(100, torch.float32), "double": rows_errors(50, torch.float64)}
    by_torch["attention"] = {
        "bwd": bwd_errors(24, 40, False, torch.float32), "bwd late": bwd_errors(40, 24, True, torch.float32),
        "decode": decode_errors(40, [40, 1], torch.float32),
    }
answers = {"exact": exact, "errors": errors, "chosen": chosen, "by torch": by_torch}
"""

OPERATORS = """
x, y, t = randn(6, 100), torch.softmax(randn(6, 100), -1), torch.tensor([0, 1, -100, 3, 4, 5])
lse, grad = torch.logsumexp(x.float(), -1), torch.ones(6)
q, k, lens = randn(2, 4, 8, 16), randn(2, 2, 16, 16), torch.tensor([16, 9], dtype=torch.int32)
rows = torch.zeros(2, 4, 8)
ops = torch.ops.tuned_kernels
calls = {
    ops.log_softmax: (x,), ops.logsumexp: (x[:, ::2],), ops.softmax_bwd: (y, x), ops.softmax_topk: (x, 3),
    ops.cross_entropy: (x, t, 0.1, 0.0), ops.cross_entropy_bwd: (x, t, lse, grad, 0.0, 0.0),
    ops.attention_bwd: (q, k, k, q, rows, q, True, None, False), ops.attention_decode: (q[:, :, :2], k, k, lens, None),
}
checks = {str(op): sorted({*torch.library.opcheck(op.default, given).values()}) for op, given in calls.items()}

def step(x, t, y, q, k, lens):
    loss, lse = kernels.cross_entropy(x, t)
    values, _ = kernels.softmax_topk(x, 3)
    rows = kernels.log_softmax(x) + kernels.softmax_bwd(y, x) + kernels.cross_entropy_bwd(x, t, lse, loss)
    out, sums = kernels.attention_decode(q[:, :, :2], k, k, lens)
    gradients = kernels.attention_bwd(q[:, :, :2].contiguous(), k, k, out, sums, out)
    return loss + kernels.logsumexp(x), values, rows, *gradients

given = (x, t, y, q, k, lens)
whole = torch.compile(step, fullgraph=True, backend="aot_eager")(*given)
same = [torch.equal(a, b) for a, b in zip(whole, step(*given))]
said = []
for call in (
    lambda: kernels.softmax_topk(x, 101), lambda: kernels.logsumexp(torch.tensor(1.0)),
    lambda: kernels.log_softmax(x, 0),
    lambda: kernels.cross_entropy(x, t[:3]), lambda: kernels.cross_entropy(x, t, label_smoothing=1.0),
    lambda: kernels.attention_decode(q, k, k, lens.long()), lambda: kernels.softmax_bwd(y, x[:3]),
    lambda: kernels.attention_bwd(q, k, k, q, rows.half(), q),
):
    try:
        call()
    except ValueError as error:
        said.append(str(error))
try:
    kernels.cross_entropy(x.clone().requires_grad_(), t)[0].sum().backward()
except RuntimeError as error:
    said.append(str(error).splitlines()[0])
print(json.dumps({**answers, "checks": checks, "same": same, "said": said}))
"""


@pytest.fixture(scope="module")
def found(package: Path) -> dict[str, Any]:
    """What one program with the package prints."""
    return run_package(package, START + RIGHT + OPERATORS)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of one winner or two for each. Read only."""
    folder = tmp_path_factory.mktemp("more")
    for name, shape, options, config in WINNERS:
        problem = get(name).problem(shape, "fp16", options)
        store_winner(folder / "tuner.db", problem, config)
    paged = get("attention_decode").problem({**HEADS, "q_len": 1, "page_size": 16}, "fp16")
    store_winner(folder / "tuner.db", paged, "template=single")
    result = tuner.export("python", folder / "tuned_kernels", db=str(folder / "tuner.db"))
    assert result.entries == len(WINNERS)
    assert [item.why for item in result.left_out] == ["a call of the package has no page_size"]
    return folder / "tuned_kernels"


def test_what_they_compute_is_what_torch_does_at_tuned_and_other_shapes(found):
    without, smoothed = found["exact"]
    assert without.startswith("cross_entropy_whole_row_") and smoothed.startswith("cross_entropy_online_")
    for kind in ("rows", "wider"):  # sums of a few hundred products, rounded to fp16 where the result is
        assert max(found["errors"][kind].values()) < 5e-3, found["errors"][kind]
    assert max(found["errors"]["attention"].values()) < 2e-2, found["errors"]["attention"]
    assert [("tuned" in text, "nearest" in text) for text in found["chosen"].values()] == [
        (True, False), (False, True), (True, False), (True, False), (False, True),
    ]  # fmt: skip
    for kind in ("rows", "double", "attention"):
        assert max(found["by torch"][kind].values()) < 1e-4, found["by torch"][kind]


def test_they_are_operators_that_torch_takes_whole_and_refuse_what_does_not_fit(found):
    assert len(found["checks"]) == len(CALLABLES) - 2
    assert {text for results in found["checks"].values() for text in results} == {"SUCCESS"}
    assert found["same"] == [True] * 6
    said = [
        "k must be from 1 to the number of columns, but got 101 for (6, 100)",
        "x has no axis",
        "the log_softmax runs over the last axis (dim=-1), but got dim=0",
        "targets must be (6,) of torch.int64 on cpu, but is (3,) of torch.int64 on cpu",
        "label_smoothing=1.0 must be from 0 to below 1",
        "seq_lens must be (2,) of torch.int32 on cpu, but is (2,) of torch.int64 on cpu",
        "dy must be (6, 100) of torch.float16 on cpu, but is (3, 100) of torch.float16 on cpu",
        "lse must be (2, 4, 8) of torch.float32 on cpu, but is (2, 4, 8) of torch.float16 on cpu",
        "tuned_kernels has no gradients",
    ]
    assert len(found["said"]) == len(said)
    assert all(got.startswith(want) for got, want in zip(found["said"], said, strict=True)), found["said"]
