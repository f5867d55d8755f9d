"""A declared operator through the whole machine, without a GPU: checked, tuned, stored, rendered."""

from __future__ import annotations

import json

import pytest

import tuner
from tests.programs import environment, run
from tuner.cli import run as command
from tuner.own_kernel import read_own_kernel
from tuner.trial import Outcome

pytestmark = pytest.mark.usefixtures("tune_environment", "standing_machine")

SIZES = {"rows": 20, "cols": 100}


def test_a_right_kernel_is_right_and_one_that_leaves_elements_out_is_not(write):
    report = tuner.check(tuner.make_problem(write(), SIZES, "bf16"))
    assert report.passed, report.reason
    assert {"randn", "spiky", "offset"} <= {f.family for f in report.families}
    # Only the kernel differs, so it is the same operator, and another variant of it.
    short = write(("mask=col < cols)\n\n\ndef launch", "mask=col < cols - 1)\n\n\ndef launch"))
    wrong = tuner.check(tuner.make_problem(short, SIZES, "bf16"))
    assert not wrong.passed and "never written" in wrong.reason


def test_tuning_stores_what_best_show_render_and_query_find(write, tmp_path, capsys):
    text = write()
    problem = tuner.make_problem(text, SIZES, "fp16", {"factor": 3.0})
    result = tuner.tune(problem, trials=3, gpu=False)
    assert result.winner is not None and result.study.trials == 3
    assert problem.operator.startswith("scaled@") and result.winner.problem == problem
    assert tuner.best(problem, estimated=True) == result.winner
    detail = tuner.show("1")
    assert {t.trial.outcome for t in detail.trials} == {Outcome.TIMED}
    kernel = tmp_path / "kernel.py"
    kernel.write_text(tuner.render(problem, best=True, estimated=True), encoding="utf-8")
    assert "import tuner" not in kernel.read_text(encoding="utf-8")
    done = run(kernel, env=environment(TRITON_INTERPRET="1"), cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("scaled rows=20 cols=100 on cpu: out: error ")
    assert done.stdout.endswith(": OK\n")
    assert command(["query", "--operator", text, "--estimated", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 3
    shape = ["--shape", "rows=20,cols=100", "--dtype", "fp16"]
    assert command(["best", text, *shape, "--option", "factor=3", "--estimated", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problem"]["operator"] == problem.operator
    assert command(["best", text, *shape]) == 1  # another factor is another problem
    assert f"tuner tune {text} " in capsys.readouterr().err


def test_a_problems_file_may_name_one_and_the_command_line_takes_it_as_an_option(write, tmp_path, capsys):
    write()
    (tmp_path / "problems.yaml").write_text(
        "- {operator: 'scaled.py:scaled', shape: {rows: 5, cols: 9}, dtype: fp32}\n"
    )
    assert command(["tune", "--problems", str(tmp_path / "problems.yaml"), "--trials", "1", "--no-gpu", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["winner"]["problem"]["operator"].startswith("scaled@")


def test_a_kernel_in_a_file_of_its_own_is_given_its_tensors_and_numbers(write, tmp_path):
    problem = tuner.make_problem(write(), SIZES, "fp32")
    own = tmp_path / "other.py"
    own.write_text("def launch(x, out, *, factor, BLOCK): ...\n", encoding="utf-8")
    candidate, guessed = read_own_kernel(own).candidate(problem, "BLOCK=128", "", "")
    assert candidate.launch_arguments == {"BLOCK": 128} and "cols in tiles of 128" in guessed
    own.write_text("def launch(x, *, factor, BLOCK): ...\n", encoding="utf-8")
    with pytest.raises(tuner.TunerError, match=r"launch\(\) has no out; scaled@.* gives it x, out, factor"):
        read_own_kernel(own).candidate(problem, "BLOCK=128", "", "")


def test_a_kernel_that_is_imported_from_beside_the_file_comes_along(write, tmp_path):
    text = write(("import tuner\n", "import tuner\nfrom scale_kernels import scale_kernel\n"))
    source = (tmp_path / "scaled.py").read_text(encoding="utf-8")
    start, end = source.index("@triton.jit"), source.index("def launch")
    kernels = f"import triton\nimport triton.language as tl\n\n\n{source[start:end]}"
    (tmp_path / "scale_kernels.py").write_text(kernels, encoding="utf-8")
    (tmp_path / "scaled.py").write_text(source[:start] + source[end:], encoding="utf-8")
    rendered = tuner.render(tuner.make_problem(text, SIZES, "fp32"))
    assert "def scale_kernel(" in rendered and "from scale_kernels" not in rendered


def test_a_reference_that_fails_in_a_worker_alone_says_its_place(write):
    text = write(("return x * factor", "return x * factor * [1.0][x.shape[1] // 50]"))
    with pytest.raises(tuner.TunerError, match=r"scaled.py:20: reference\(\) raised IndexError") as error:
        tuner.check(tuner.make_problem(text, SIZES, "fp32"))
    assert "\n" not in str(error.value)


def test_commands_take_it_as_an_argument_or_as_an_option_and_not_as_both(write, capsys):
    text = write()
    shape = ["--shape", "rows=20,cols=100", "--dtype", "fp16"]
    assert command(["render", "--operator", text, *shape]) == 0
    assert "def scale_kernel(" in capsys.readouterr().out
    assert command(["operators", "--operator", text, "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["name"].startswith("scaled@") and listed["valid_configs"] == 3
    assert command(["best", "softmax", "--operator", text, *shape]) == 2
    assert "both say what is computed; give one of them" in capsys.readouterr().err
