"""Operators of the user's own in a package: their callables, and what cannot leave their file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tuner
from tests.checkout import checkout
from tests.exports.stored_winners import softmax, store_winner
from tests.exports.test_python_package import run_package
from tests.programs import environment
from tuner.errors import UsageError

RMSNORM = """
def error(rows, cols, dtype=torch.float16, **rest):
    g = torch.Generator().manual_seed(0)
    x, w = torch.randn(rows, cols, generator=g).to(dtype), torch.randn(cols, generator=g).to(dtype)
    wide = x.double()
    right = wide / torch.sqrt((wide * wide).mean(dim=1, keepdim=True) + rest.get("eps", 1e-6)) * w.double()
    return (kernels.rmsnorm(x, w, **rest).double() - right).abs().max().item()

kernels.use_device("NVIDIA H200")
choices = [repr(kernels.best("rmsnorm", torch.float16, (rows, 512), (), -1)) for rows in (64, 50)]
try:
    kernels.rmsnorm(torch.zeros(4, 8), torch.zeros(9))
    refused = ""
except ValueError as error_:
    refused = str(error_)
errors = [error(64, 512), error(50, 512, eps=0.5)]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    untuned = error(8, 512, torch.float32)
meta = kernels.rmsnorm(*(torch.zeros(shape, dtype=torch.float16, device="meta") for shape in ((3, 512), (512,))))
shape = list(meta.shape)
print(json.dumps({"choices": choices, "errors": errors, "untuned": untuned, "refused": refused, "meta": shape}))
"""


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.operators._REGISTERED", {})
    monkeypatch.setattr("tuner.own_operators.files._LOADED", {})


def rmsnorm() -> str:
    return f"{checkout() / 'examples/rmsnorm/rmsnorm.py'}:rmsnorm"


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = tmp_path / "tuner.db"
    problem = tuner.make_problem(rmsnorm(), {"rows": 64, "cols": 512}, "fp16")
    store_winner(path, problem, "BLOCK_ROWS=2,num_warps=2")
    return str(path)


@pytest.mark.slow
def test_a_package_has_its_callable_and_its_reference_for_what_was_not_tuned(database, tmp_path):
    result = tuner.export("python", tmp_path / "tuned_kernels", db=database)
    assert (result.entries, result.left_out) == (1, ())
    said = run_package(tmp_path / "tuned_kernels", RMSNORM)
    exact, nearest = said["choices"]
    assert "BLOCK_ROWS': 2, 'BLOCK_COLS': 512, 'num_warps': 2}, tuned)" in exact
    assert "nearest, of (64, 512))" in nearest
    assert max(said["errors"]) < 5e-3 and 0 < said["untuned"] < 1e-5
    assert said["refused"].startswith("weight must be (8,) of torch.float32, but is (9,)")
    assert said["meta"] == [3, 512]


def test_its_kernel_goes_under_an_autotuner(database, tmp_path):
    result = tuner.export("triton", tmp_path / "configs.py", db=database, settings={"key": "cols"})
    assert result.entries == 1
    assert "rmsnorm_kernel" in (tmp_path / "configs.py").read_text(encoding="utf-8")


def test_winners_of_a_file_that_is_not_named_are_left_out_and_the_others_are_not(database, tmp_path):
    store_winner(database, softmax(64, 512), "template=whole_row,num_warps=2")
    code = (
        "import sys, tuner\n"
        "result = tuner.export('python', 'kernels', db=sys.argv[1])\n"
        "(left,) = result.left_out\n"
        "print(result.entries, left.why)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, database],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.startswith("1 rmsnorm@")
    assert "is an operator of a file of your own; name it, as FILE.py:rmsnorm" in done.stdout


def test_a_reference_that_cannot_leave_its_file_is_said(tmp_path):
    source = (checkout() / "examples/rmsnorm/rmsnorm.py").read_text(encoding="utf-8")
    space = (checkout() / "examples/rmsnorm/rmsnorm.yaml").read_text(encoding="utf-8")
    changed = source.replace("    return x / torch", "    tuner.Work(1.0)\n    return x / torch")
    assert changed != source
    (tmp_path / "rmsnorm.py").write_text(changed, encoding="utf-8")
    (tmp_path / "rmsnorm.yaml").write_text(space, encoding="utf-8")
    problem = tuner.make_problem(f"{tmp_path / 'rmsnorm.py'}:rmsnorm", {"rows": 64, "cols": 512}, "fp16")
    store_winner(tmp_path / "tuner.db", problem, "num_warps=2")
    with pytest.raises(UsageError, match=r"its reference uses this project, which such a package does not need"):
        tuner.export("python", tmp_path / "tuned_kernels", db=str(tmp_path / "tuner.db"))
