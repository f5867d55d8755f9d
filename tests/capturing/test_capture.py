"""What a program runs: counted, made problems of, and said where it is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import tuner
from tests.checkout import checkout
from tests.exports.stored_winners import softmax, store_winner
from tests.programs import environment, run
from tuner.capturing.problems_of import NoProblemError, Seen, attention_backward
from tuner.capturing.recording import Recording
from tuner.capturing.torch_calls import count
from tuner.cli import run as command
from tuner.errors import UsageError
from tuner.problems_file import load_problems


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.operators._REGISTERED", {})
    monkeypatch.setattr("tuner.own_operators.files._LOADED", {})


def counted(recording: Recording) -> dict[str, int]:
    return {item.problem.label: item.count for item in recording.problems}


def passed_over(recording: Recording) -> dict[tuple[str, str], int]:
    return {(item.what, item.why): item.count for item in recording.not_captured}


def test_every_spelling_of_a_softmax_is_one_problem_and_counted():
    x = torch.randn(4, 8, 100, dtype=torch.bfloat16)
    with tuner.capture() as recording:
        for _ in range(3):
            torch.softmax(x, -1)
        functional.softmax(x, dim=2)
        x.softmax(-1)
        torch.nn.Softmax(dim=-1)(x)
        torch.softmax(x[0, 0], 0)
    torch.softmax(x, -1)  # outside
    assert counted(recording) == {
        "softmax rows=32 cols=100 row_stride=100 bf16": 6,
        "softmax rows=1 cols=100 row_stride=100 bf16": 1,
    }
    assert recording.problems[0].problem == tuner.make_problem("softmax", {"rows": 32, "cols": 100}, "bf16")


def test_strides_that_the_operator_takes_are_kept_and_others_are_said():
    x = torch.randn(6, 4, 128)
    with tuner.capture() as recording:
        torch.softmax(x[:, :, :50], -1)  # rows 128 apart
        torch.softmax(x.transpose(0, 1), -1)  # rows that are not evenly apart
        torch.softmax(torch.randn(100, 30).T, -1)  # columns that are not side by side
        torch.softmax(x, 1)
        torch.softmax(x.double(), -1)
    found = {item.problem.label: item.notes for item in recording.problems}
    assert found.pop("softmax rows=24 cols=50 row_stride=128 fp32") == ()
    copied = ("some were not contiguous; counted as if they were, which a copy makes them",)
    assert found == {
        "softmax rows=24 cols=128 row_stride=128 fp32": copied,
        "softmax rows=30 cols=100 row_stride=100 fp32": copied,
    }
    assert passed_over(recording) == {
        ("softmax", "it runs over another axis than the last"): 1,
        ("softmax", "softmax takes no float64"): 1,
    }


def test_attention_is_counted_where_it_is_called_and_not_once_more_inside():
    q = torch.randn(2, 4, 64, 32, requires_grad=True)
    k = torch.randn(2, 2, 64, 32)
    attend = functional.scaled_dot_product_attention
    with tuner.capture() as recording:
        for _ in range(2):
            attend(q, k, k, is_causal=True, enable_gqa=True)
        attend(query=q, key=k, value=k, enable_gqa=True, scale=0.5).sum().backward()
        attend(q, q, q, scale=32**-0.5)
        attend(q, q, q[..., :16])
        attend(q, q, q, attn_mask=torch.ones(64, 64, dtype=torch.bool))
        attend(q, q, q, dropout_p=0.5)
        attend(q[:, :, :5], q, q, is_causal=True)
    assert counted(recording) == {
        "attention_fwd batch=2 heads=4 kv_heads=2 q_len=64 kv_len=64 head_dim=32 fp32 causal": 2,
        "attention_fwd batch=2 heads=4 kv_heads=2 q_len=64 kv_len=64 head_dim=32 fp32 scale=0.5": 1,
        "attention_bwd batch=2 heads=4 kv_heads=2 q_len=64 kv_len=64 head_dim=32 fp32 scale=0.5": 1,
        "attention_fwd batch=2 heads=4 kv_heads=4 q_len=64 kv_len=64 head_dim=32 fp32": 1,
        "attention_fwd batch=2 heads=4 kv_heads=4 q_len=64 kv_len=64 head_dim=32 v_head_dim=16 fp32": 1,
    }
    others = passed_over(recording)
    assert others["scaled_dot_product_attention", "it has a mask"] == 1
    assert others["scaled_dot_product_attention", "it has dropout"] == 1
    assert any("aligns at the first" in why for _, why in others)


def test_the_backward_pass_of_attention_is_a_problem_of_its_own():
    q, k = torch.randn(2, 4, 64, 32, requires_grad=True), torch.randn(2, 4, 48, 32)
    with tuner.capture() as recording, sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        functional.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.5).sum().backward()
        functional.scaled_dot_product_attention(q, k, k).sum().backward()
    assert {label: count for label, count in counted(recording).items() if "bwd" in label} == {
        "attention_bwd batch=2 heads=4 kv_heads=4 q_len=64 kv_len=64 head_dim=32 fp32 causal scale=0.5": 1,
        "attention_bwd batch=2 heads=4 kv_heads=4 q_len=64 kv_len=48 head_dim=32 fp32": 1,
    }
    masked = {"query": q, "key": q, "value": q, "attn_bias": torch.zeros(64, 64), "dropout_p": 0.0, "is_causal": False}
    with pytest.raises(NoProblemError, match="it has a mask"):
        attention_backward(masked)
    with pytest.raises(NoProblemError, match="its values have another head_dim than its queries"):
        attention_backward({**masked, "attn_bias": None, "value": q[..., :16]})


def test_what_no_operator_computes_is_said_with_its_count():
    x = torch.randn(4, 10, requires_grad=True)
    with tuner.capture() as recording:
        torch.log_softmax(x, -1)[:, 0].sum().backward()
        functional.nll_loss(torch.log_softmax(x, -1), torch.zeros(4, dtype=torch.int64)).backward()
        torch.log_softmax(x, 0).sum().backward()
    backward = {why: count for (what, why), count in passed_over(recording).items() if "backward" in what}
    assert backward == {
        "no operator computes it alone; where it is a cross-entropy's, cross_entropy and cross_entropy_bwd compute it "
        "in one with the log_softmax: tune both with --shape rows=4,cols=10": 2,
        "no operator computes it alone": 1,
    }
    assert counted(recording) == {"log_softmax rows=4 cols=10 row_stride=10 fp32": 2}


def test_log_softmax_logsumexp_and_the_gradient_of_softmax_are_problems_of_their_own():
    x = torch.randn(4, 6, 10, requires_grad=True)
    with tuner.capture() as recording:
        torch.softmax(x, -1).backward(torch.randn(4, 6, 10))
        torch.softmax(x, -1).sum().backward()  # the gradient has strides of 0
        functional.log_softmax(x, -1)
        torch.logsumexp(x.detach(), dim=2)
        x.detach().logsumexp((1, 2))
        x.detach()[..., :7].logsumexp(-1, keepdim=True)
        torch.log_softmax(x, 1)
    copied = ("some were not contiguous; counted as if they were, which a copy makes them",)
    assert {item.problem.label: (item.count, item.notes) for item in recording.problems} == {
        "softmax rows=24 cols=10 row_stride=10 fp32": (2, ()),
        "softmax_bwd rows=24 cols=10 row_stride=10 fp32": (2, copied),
        "log_softmax rows=24 cols=10 row_stride=10 fp32": (1, ()),
        "logsumexp rows=24 cols=10 row_stride=10 fp32": (1, ()),
        "logsumexp rows=24 cols=7 row_stride=10 fp32": (1, ()),
    }
    assert passed_over(recording) == {
        ("logsumexp", "it runs over several axes"): 1,
        ("log_softmax", "it runs over another axis than the last"): 1,
    }


def test_a_call_that_cannot_be_read_goes_on_and_is_counted():
    def unknown() -> Seen:
        raise IndexError("tuple index out of range")

    recording = Recording()
    count(recording, "softmax", unknown)
    assert passed_over(recording) == {("softmax", "it cannot be read (IndexError: tuple index out of range)"): 1}


def test_the_file_is_a_problems_file_with_counts_and_what_is_not_tunable(tmp_path):
    path = tmp_path / "captured.yaml"
    with pytest.raises(ZeroDivisionError), tuner.capture(path):
        for _ in range(3):
            torch.softmax(torch.randn(4, 64), -1)
        torch.softmax(torch.randn(4, 64), 0)
        1 / 0  # noqa: B018  # the file is written all the same
    assert [(r.problem.label, r.count) for r in load_problems(path)] == [
        ("softmax rows=4 cols=64 row_stride=64 fp32", 3)
    ]
    assert "# not tunable: softmax (1 times): it runs over another axis than the last\n" in path.read_text()
    with tuner.capture(path):  # its own file may be written again
        torch.softmax(torch.randn(4, 32), -1)
    assert [r.problem.sizes["cols"] for r in load_problems(path)] == [32]
    path.write_text("problems: []\n")
    with (
        pytest.raises(UsageError, match="was not written by `tuner capture`, so it is not replaced"),
        tuner.capture(path),
    ):
        raise AssertionError("the program must not run")
    assert path.read_text() == "problems: []\n"


def test_counts_of_equal_problems_in_a_file_add_up(tmp_path):
    path = tmp_path / "problems.yaml"
    entry = "- {operator: softmax, shape: {rows: 4, cols: 64}, dtype: fp32"
    path.write_text(f"{entry}, count: 5}}\n{entry}}}\n")
    assert [(r.problem.sizes["cols"], r.count) for r in load_problems(path)] == [(64, 6)]
    path.write_text(f"{entry}, count: 0}}\n")
    with pytest.raises(UsageError, match="count"):
        load_problems(path)


@pytest.mark.slow
def test_kernels_and_exported_packages_are_seen_in_the_interpreter(tmp_path):
    rmsnorm = checkout() / "examples/rmsnorm/rmsnorm.py"
    own = tuner.make_problem(f"{rmsnorm}:rmsnorm", {"rows": 8, "cols": 64}, "fp16")
    store_winner(tmp_path / "tuner.db", own, "num_warps=1")
    store_winner(tmp_path / "tuner.db", softmax(8, 64), "template=whole_row,num_warps=1")
    tuner.export("python", tmp_path / "tuned_kernels", db=str(tmp_path / "tuner.db"))
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.append({str(rmsnorm.parent)!r})\n"
        "import torch, rmsnorm, tuned_kernels\n"
        "tuned_kernels.use_device('NVIDIA H200')\n"
        "x, w = torch.randn(8, 64).half(), torch.randn(64).half()\n"
        "for _ in range(2): tuned_kernels.rmsnorm(x, w)\n"
        "for _ in range(3): tuned_kernels.softmax(x)\n"
        "rmsnorm.launch(x[:5], w, torch.empty(5, 64).half(), eps=0.5, BLOCK_ROWS=1, BLOCK_COLS=64, num_warps=1)\n"
        "print('ran', sys.argv[1:])\n"
    )
    words = [
        "-m",
        "tuner",
        "capture",
        "--json",
        "-o",
        "out.yaml",
        "--operator",
        f"{rmsnorm}:rmsnorm",
        "program.py",
        "-x",
    ]
    done = run(*words, env=environment(TRITON_INTERPRET="1"), cwd=tmp_path, limit_s=120)
    assert done.returncode == 0, done.stderr
    assert "ran ['-x']" in done.stderr
    answer = json.loads(done.stdout)
    assert {(p["problem"]["label"].partition("@")[0][:7], p["count"]) for p in answer["problems"]} == {
        ("softmax", 3), ("rmsnorm", 2), ("rmsnorm", 1),
    }  # fmt: skip
    monkey = {r.problem.label: r.count for r in load_problems(tmp_path / "out.yaml")}
    assert monkey[own.label] == 2 and any("rows=5 cols=64 fp16 eps=0.5" in label for label in monkey)


def test_a_script_that_fails_says_where_and_keeps_what_ran(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text("import torch\ntorch.softmax(torch.zeros(2, 3), -1)\nraise KeyError('x')\n")
    assert command(["capture", "program.py"]) == 2
    said = capsys.readouterr().err
    assert said == "error: program.py:3: raised KeyError: 'x'; what ran before is in captured.yaml\n"
    assert [r.problem.sizes["rows"] for r in load_problems("captured.yaml")] == [2]
    assert command(["capture", "nothing.py"]) == 2
    assert "nothing.py: no such file; give the script to run" in capsys.readouterr().err
    Path("program.py").write_text("import sys\nsys.exit(3)\n")
    assert command(["capture", "program.py"]) == 2
    assert "program.py: exited with 3" in capsys.readouterr().err
