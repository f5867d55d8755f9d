"""Operators of a user's own file, measured: a norm and the grouped product of a mixture of experts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tuner
from tests.checkout import checkout
from tests.programs import environment
from tuner.trial import Outcome
from tuner.tuned_coverage import Coverage

USE = """
import json, sys
import torch
import tuner, tuned_kernels

x = torch.randn(256, 1024, device="cuda").bfloat16()
w = torch.randn(1024, device="cuda").bfloat16()
with tuner.capture(sys.argv[1], operators=[sys.argv[2]]) as recording:
    for _ in range(3):
        y = tuned_kernels.rmsnorm(x, w)
    torch.softmax(x, -1)
    torch.nn.functional.scaled_dot_product_attention(*(torch.randn(1, 4, 128, 64, device="cuda").half() for _ in "qkv"))
choice = tuned_kernels.best("rmsnorm", torch.bfloat16, (256, 1024), (), 0)
wide = x.double()
right = wide / torch.sqrt((wide * wide).mean(dim=1, keepdim=True) + 1e-6) * w.double()
error = ((y.double() - right).abs() / (right.abs() + 1e-3)).max().item()
problems = {item.problem.label: item.count for item in recording.problems}
print(json.dumps({"exact": choice.exact, "error": error, "problems": problems}))
"""


def example(name: str, operator: str) -> str:
    return f"{checkout() / f'examples/{name}/{name}.py'}:{operator}"


def outcomes(study: str, database: str) -> dict[str, list[str]]:
    """The reasons by outcome."""
    found: dict[str, list[str]] = {}
    for entry in tuner.show(study, db=database).trials:
        found.setdefault(str(entry.trial.outcome), []).append(entry.trial.reason)
    return found


def test_a_norm_is_tuned_exported_called_and_covered(database: str, tmp_path: Path) -> None:
    own = example("rmsnorm", "rmsnorm")
    problem = tuner.make_problem(own, {"rows": 256, "cols": 1024}, "bf16")
    result = tuner.tune(problem, trials=6, db=database, gpu=True)
    assert result.winner is not None and not result.winner.record.estimated
    assert set(outcomes(result.study.name, database)) <= {"timed", "pruned"}
    trials = [entry.trial for entry in tuner.show(result.study.name, db=database).trials]
    assert {t.seconds["recompiled"] for t in trials if t.outcome is Outcome.TIMED and not t.same_as} == {0.0}
    tuner.export("python", tmp_path / "tuned_kernels", db=database)
    (tmp_path / "use.py").write_text(USE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "use.py", "captured.yaml", own],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["exact"] and said["error"] < 2**-7
    assert said["problems"] == {
        problem.label: 3,
        "softmax rows=256 cols=1024 row_stride=1024 bf16": 1,
        "attention_fwd batch=1 heads=4 kv_heads=4 q_len=128 kv_len=128 head_dim=64 fp16": 1,
    }
    report = tuner.coverage(tmp_path / "captured.yaml", db=database)
    assert (report.calls(Coverage.TUNED), report.calls(Coverage.UNTUNED), report.estimated) == (3, 2, False)


def test_the_experts_product_is_tuned_and_goes_into_vllms_table(database: str, tmp_path: Path) -> None:
    own = example("moe", "moe_up")
    for tokens in (16, 128):
        shape = {"tokens": tokens, "topk": 2, "experts": 8, "hidden": 512, "intermediate": 256}
        result = tuner.tune(tuner.make_problem(own, shape, "bf16"), trials=4, db=database, gpu=True)
        assert result.winner is not None and not result.winner.record.estimated
        assert set(outcomes(result.study.name, database)) <= {"timed", "pruned", "out_of_resources"}
    exported = tuner.export("vllm_moe", tmp_path / "configs", db=database, operator=own, seed=True)
    (table, _) = exported.files
    assert table.name.startswith("E=8,N=256,device_name=NVIDIA_")
    assert list(json.loads(table.read_text())) == ["16", "128"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mean = tl.sum(x * x, axis=1) / cols", "mean = tl.sum(x * x, axis=1) / BLOCK_COLS"),
        ("mask=inside)", "mask=inside & (col[None, :] < cols - 1))"),
    ],
    ids=["divided by the block", "last column left out"],
)
def test_a_wrong_kernel_of_ones_own_is_wrong(old: str, new: str, tmp_path: Path) -> None:
    for name in ("rmsnorm.py", "rmsnorm.yaml"):
        shutil.copy(checkout() / "examples/rmsnorm" / name, tmp_path / name)
    source = (tmp_path / "rmsnorm.py").read_text(encoding="utf-8")
    assert old in source
    (tmp_path / "rmsnorm.py").write_text(source.replace(old, new), encoding="utf-8")
    problem = tuner.make_problem(f"{tmp_path / 'rmsnorm.py'}:rmsnorm", {"rows": 64, "cols": 1000}, "bf16")
    report = tuner.check(problem, gpu=True)
    assert report.mode == "gpu" and not report.passed
