from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.templates import SOFTMAX
from tuner import operators
from tuner.config import Config
from tuner.device import Stack
from tuner.problem import Problem
from tuner.rendering import render
from tuner.standalone import StandaloneHeader, standalone
from tuner.template import read_template

PROBLEM = Problem("softmax", (("rows", 5), ("cols", 37)), "fp32")
SELF_CHECK = """
import torch

x = torch.linspace(-8, 8, 5 * 37).reshape(5, 37)
out = torch.full_like(x, float("nan"))
launch(x, out, **CONFIG)
error = (out.double() - torch.softmax(x.double(), dim=1)).abs()
print(f"max error over tolerance: {(error / 1e-6).max().item():.3f}")
"""


def make(
    exp2: bool = True,
    divide: bool = False,
    self_check: str = SELF_CHECK,
    tolerance: str = "1e-6, absolute\nsecond line",
    **rest: object,
) -> str:
    variant = render(
        read_template("softmax", "small", Path("small.py"), SOFTMAX), {"USE_EXP2": exp2, "DIVIDE": divide}, None
    )
    config = Config("small", (("DIVIDE", divide), ("USE_EXP2", exp2)), (("BLOCK", 64), ("PER_SM", 2), ("num_warps", 4)))
    return standalone(
        variant,
        StandaloneHeader.of(
            PROBLEM,
            config,
            {"num_warps": 4, "BLOCK": 64, "USE_EXP2": exp2},
            space_digest="0123abcd",
            stack=Stack("estimated", "3.9.0", "2.13.0", "ptxas 12.9"),
            tolerance=tolerance,
            self_check=self_check,
            generator="triton-variant-tuner 0.1.0",
            **rest,
        ),
    )


def test_the_header_says_where_the_file_comes_from():
    text = make()
    variant = render(
        read_template("softmax", "small", Path("small.py"), SOFTMAX), {"USE_EXP2": True, "DIVIDE": False}, None
    )
    assert text.splitlines()[:12] == [
        "# A tuned Triton kernel. Generated; needs torch and Triton only. Call launch(..., **CONFIG).",
        "# Operator:     softmax",
        "# Problem:      softmax rows=5 cols=37 fp32",
        "# Config:       template=small,DIVIDE=False,USE_EXP2=True,BLOCK=64,PER_SM=2,num_warps=4",
        "# Switches:     DIVIDE=False, USE_EXP2=True",
        f"# Template:     softmax/small, SHA-256 {variant.template_hash}",
        f"# Variant:      SHA-256 {variant.hash}",
        "# Search space: 0123abcd",
        "# Tuned for:    Triton 3.9.0, torch 2.13.0; estimated, not measured",
        "# exp2:         shim",
        "# Tolerance:    1e-6, absolute",
        "#               second line",
    ]


def test_the_config_holds_what_launch_still_takes():
    tree = ast.parse(make())
    values = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "CONFIG"]
    assert [ast.literal_eval(v) for v in values] == [{"BLOCK": 64, "num_warps": 4}]
    assert ast.get_docstring(tree) == "Softmax of one row a program, the whole row in one block."


def test_the_same_arguments_give_the_same_bytes():
    assert make() == make()


def test_text_from_outside_stays_in_the_comment():
    text = make(tolerance="fine\r\nimport os\x0cimport sys\x85import re", self_check="")
    assert not any(line.startswith("import os") for line in text.splitlines())
    assert [line for line in text.splitlines() if "import os" in line] == [
        "#               import os import sys import re"
    ]


def test_a_self_check_with_its_own_main_part_is_kept_as_it_is():
    text = make(self_check='def check():\n    pass\n\n\nif __name__ == "__main__":\n    check()\n')
    assert text.endswith('\n\n\ndef check():\n    pass\n\n\nif __name__ == "__main__":\n    check()\n')


@pytest.mark.parametrize("exp2", [True, False])
def test_the_file_runs_where_tuner_cannot_be_imported(tmp_path, exp2):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    path = tmp_path / "softmax.py"
    path.write_text(make(exp2))
    word, value = interpret(path).strip().rsplit(" ", 1)
    assert word == "max error over tolerance:"
    assert float(value) < 1.0


def test_the_operators_own_self_check_runs_and_has_torch(tmp_path):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    problem = operators.get("softmax").problem({"rows": 5, "cols": 37}, "fp32")
    text = make(divide=True, self_check=operators.get("softmax").self_check(problem))
    assert text.count("import torch\n") == 1
    path = tmp_path / "softmax.py"
    path.write_text(text)
    assert interpret(path).strip().endswith("OK")


def test_without_a_gpu_and_the_interpreter_the_file_says_what_to_do_in_one_line(tmp_path):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    path = tmp_path / "softmax.py"
    path.write_text(make())
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", path], env={**environment, **hidden}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: no GPU is visible; set TRITON_INTERPRET=1 to run this in Triton's interpreter\n"


def interpret(path: Path) -> str:
    """What the file prints in the interpreter, in a process in which every import of ``tuner`` fails."""
    hidden = f"import runpy, sys; sys.modules['tuner'] = None; runpy.run_path({str(path)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-I", "-W", "ignore", "-c", hidden],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=path.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
