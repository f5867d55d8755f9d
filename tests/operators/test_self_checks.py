"""The self-check of a standalone file runs with torch alone and tells right from wrong by its exit status."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tuner.operators import get

SOFTMAX = """import torch

CONFIG = {"BLOCK": 64}


def launch(x, out, *, BLOCK):
    out.copy_(torch.softmax(x.float(), dim=1) * FACTOR)


"""
ATTENTION = """import torch

CONFIG = {"BLOCK": 64}


def launch(q, k, v, out, lse, *, scale, BLOCK):
    group = q.shape[1] // k.shape[1]
    s = scale * q.float() @ k.float().repeat_interleave(group, 1).transpose(2, 3)
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
    s = s.masked_fill(j > i + k.shape[2] - q.shape[2], float("-inf"))
    lse.copy_(s.logsumexp(-1) * FACTOR)
    out.copy_(torch.softmax(s, -1).nan_to_num(0.0).to(v.dtype) @ v.repeat_interleave(group, 1))


"""


def run(tmp_path, source):
    path = tmp_path / "standalone.py"
    path.write_text(source)
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=tmp_path)


@pytest.mark.parametrize(("factor", "status", "word"), [("1.0", 0, "OK"), ("1.02", 1, "WRONG")])
def test_softmax(tmp_path, factor, status, word):
    problem = get("softmax").problem({"rows": 5000, "cols": 300, "row_stride": 310}, "bf16")
    done = run(tmp_path, SOFTMAX.replace("FACTOR", factor) + get("softmax").self_check(problem))
    assert done.returncode == status, done.stderr
    assert f": {word}" in done.stdout and "64 x 300" in done.stdout


@pytest.mark.parametrize(("factor", "status", "word"), [("1.0", 0, "OK"), ("1.4427", 1, "WRONG")])
def test_attention(tmp_path, factor, status, word):
    shape = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 90, "kv_len": 70, "head_dim": 32}
    problem = get("attention_fwd").problem(shape, "fp16", {"causal": True})
    done = run(tmp_path, ATTENTION.replace("FACTOR", factor) + get("attention_fwd").self_check(problem))
    assert done.returncode == status, done.stderr
    assert f": {word}" in done.stdout


def test_bf16_is_not_judged_in_the_interpreter(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    problem = get("softmax").problem({"rows": 64, "cols": 300}, "bf16")
    done = run(tmp_path, SOFTMAX.replace("FACTOR", "1.02") + get("softmax").self_check(problem))
    assert done.returncode == 0, done.stderr
    assert "not judged" in done.stdout and "WRONG" not in done.stdout
