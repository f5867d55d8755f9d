"""The self-checks of log_softmax, logsumexp and softmax_bwd tell right from wrong by their exit status."""

from __future__ import annotations

import pytest

from tuner.operators import get

HEAD = """import torch

CONFIG = {"BLOCK": 64}


"""
LAUNCH = {
    "log_softmax": """def launch(x, out, *, BLOCK):
    out.copy_(torch.log_softmax(x.float(), dim=1) * FACTOR)
""",
    "logsumexp": """def launch(x, out, *, BLOCK):
    out.copy_(torch.logsumexp(x.float(), dim=1) * FACTOR)
""",
    "softmax_bwd": """def launch(y, dy, dx, *, BLOCK):
    total = (y.float() * dy.float()).sum(dim=1, keepdim=True)
    dx.copy_(y.float() * (dy.float() - total) * FACTOR)
""",
}


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("name", LAUNCH)
def test_right_and_wrong(name, dtype, capsys):
    problem = get(name).problem({"rows": 5000, "cols": 300, "row_stride": 310}, dtype)
    for factor, status, word in (("1.0", 0, "OK"), ("1.02", 1, "WRONG")):
        source = HEAD + LAUNCH[name].replace("FACTOR", factor) + "\n\n" + get(name).self_check(problem)
        with pytest.raises(SystemExit) as end:
            exec(compile(source, "standalone.py", "exec"), {"__name__": "__main__"})
        said = capsys.readouterr().out
        assert end.value.code == status, said
        assert f": {word}" in said and f"{name} 64 x 300" in said


def test_bf16_is_not_judged_in_the_interpreter(monkeypatch, capsys):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    problem = get("logsumexp").problem({"rows": 64, "cols": 300}, "bf16")
    source = HEAD + LAUNCH["logsumexp"].replace("FACTOR", "1.02") + "\n\n" + get("logsumexp").self_check(problem)
    with pytest.raises(SystemExit) as end:
        exec(compile(source, "standalone.py", "exec"), {"__name__": "__main__"})
    assert end.value.code == 0 and "not judged" in capsys.readouterr().out
