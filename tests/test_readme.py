"""The README and the pages beside it: every command parses, every example runs, every name and link is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import checkout
from tests.programs import environment, run
from tuner.cli import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_WORSE
from tuner.cli.app import command
from tuner.cli.problem_arguments import read_problem
from tuner.device import Device
from tuner.errors import TunerError
from tuner.operators import names
from tuner.problems_file import load_problems
from tuner.search import SAMPLERS
from tuner.space import load_space
from tuner.targets import target
from tuner.trial import Outcome

README = (checkout() / "README.md").read_text(encoding="utf-8")
PAGES = ["README.md", "CONTRIBUTING.md", "db/README.md", *(f"docs/{p.name}" for p in checkout().glob("docs/*.md"))]


def blocks(language: str, text: str = README) -> list[str]:
    """The contents of the code blocks in ``language``."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """The words of every ``$ ...`` line of the console blocks; a line that ends in a backslash goes on."""
    text = "\n".join(blocks("console")).replace("\\\n", " ")
    return [shlex.split(line[2:]) for line in text.splitlines() if line.startswith("$ ")]


def tuner_commands() -> list[list[str]]:
    return [words[1:] for words in commands() if words[0] == "tuner"]


def subcommands() -> dict[str, Any]:
    """The commands by name. Typer brings its own click in newer versions, so click's types are not named here."""
    group: Any = command()
    return dict(group.commands)


def parsed(words: list[str]) -> dict[str, Any]:
    """The parameters that a command line gives; an unknown option or a wrong type raises."""
    chosen = subcommands()[words[0]]
    with chosen.make_context(f"tuner {words[0]}", words[1:]) as context:
        return dict(context.params)


@pytest.mark.parametrize("words", tuner_commands(), ids=" ".join)
def test_every_command_parses(words):
    given = parsed(words)
    if given.get("operator"):
        here = f"{checkout()}/" if ".py:" in given["operator"] else ""
        problem = read_problem(
            here + given["operator"], given["shape"], given["dtype"], given["causal"], given["scale"], given["option"]
        )
        space = load_space(checkout() / given["space"] if given.get("space") else problem.operator)
        bound = space.bind(problem, target(given.get("target") or "h200"))
        if not given.get("file"):  # with a file, the config is its launch's own arguments
            assert bound.parse(given.get("config") or "").label
    if given.get("problems"):
        assert load_problems(checkout() / str(given["problems"]))


def test_an_option_that_a_command_lacks_would_be_found():
    with pytest.raises(Exception, match="No such option: --trials"):
        parsed(["best", "softmax", "--trials", "3"])


def test_every_command_of_the_help_is_shown():
    assert {words[0] for words in tuner_commands()} == set(subcommands())


def test_every_other_word_at_a_prompt_is_known():
    others = {words[0] for words in commands() if words[0] != "tuner"}
    assert others == {".", "TRITON_INTERPRET=1", "make", "optuna-dashboard", "pip", "sqlite3"}


def test_the_two_make_targets_exist():
    makefile = (checkout() / "Makefile").read_text(encoding="utf-8")
    assert [words[1] for words in commands() if words[0] == "make"] == ["demo", "test"]
    for name in re.findall(r"\bmake ([a-z-]+)", README + (checkout() / "CONTRIBUTING.md").read_text(encoding="utf-8")):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name


def test_every_outcome_is_explained():
    table = README.split("### How a trial ends")[1].split("###")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [
        "timed", "pruned", "wrong", "out_of_resources", "compile_error", "crashed", "timed_out",
    ]  # fmt: skip
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {str(outcome) for outcome in Outcome}


def test_the_exit_codes_are_those_of_the_program():
    table = README.split("### Exit codes")[1].split("###")[0]
    errors = {kind.exit_code for kind in (TunerError, *TunerError.__subclasses__())}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == {
        0, *errors, EXIT_WORSE, EXIT_INTERNAL, EXIT_INTERRUPTED,
    }  # fmt: skip


def test_every_environment_variable_is_listed():
    table = README.split("### Environment variables")[1].split("###")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    sources = "".join(path.read_text(encoding="utf-8") for path in (checkout() / "tuner").rglob("*.py"))
    assert listed == set(re.findall(r'"(TUNER_[A-Z]+)"', sources))


def test_every_operator_sampler_and_named_target_exists():
    assert all(f"`{name}`" in README for name in names(shipped=True))
    assert all(f"`{name}`" in README or f"--sampler {name}" in README for name in SAMPLERS)
    (listed,) = re.findall(r"an architecture such as (.*?)\.\n", README, re.DOTALL)
    for name in re.findall(r"`(\w+)`", listed):
        assert isinstance(target(name), Device)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    text = (checkout() / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("https://") or (checkout() / page).parent.joinpath(link).exists(), link


def test_the_search_space_in_the_readme_is_the_example():
    example = (checkout() / "examples/my_space/softmax.yaml").read_text(encoding="utf-8")
    (shown,) = [block for block in blocks("yaml") if "templates:" in block]
    assert example.endswith(shown)
    assert "def launch(x, out, *, BLOCK_COLS, USE_EXP2, num_warps):" in (
        checkout() / "examples/my_space/row_softmax.py"
    ).read_text(encoding="utf-8")


def test_the_problems_in_the_readme_are_problems(tmp_path):
    (shown,) = [block for block in blocks("yaml") if "problems:" in block]
    (tmp_path / "problems.yaml").write_text(shown, encoding="utf-8")
    assert [r.problem.label for r in load_problems(tmp_path / "problems.yaml")] == [
        "softmax rows=4096 cols=1024 row_stride=1024 bf16",
        "softmax rows=4096 cols=32768 row_stride=32768 bf16",
        "attention_fwd batch=4 heads=32 kv_heads=8 q_len=4096 kv_len=4096 head_dim=128 bf16 causal",
    ]


def test_the_annotated_search_space_is_one(tmp_path):
    page = (checkout() / "docs/search-spaces.md").read_text(encoding="utf-8")
    (shown,) = [block for block in blocks("yaml", page) if "templates:" in block]
    path = tmp_path / "space.yaml"
    path.write_text(shown, encoding="utf-8")
    bound = load_space(path).bind(read_problem("softmax", ["rows=512,cols=4096"], "fp16"), target("sm_90"))
    assert bound.templates == ("online",)
    assert bound.size() == 144


def test_the_example_space_holds_twelve_configs_for_the_problem_in_the_readme():
    space = load_space(checkout() / "examples/my_space/softmax.yaml")
    bound = space.bind(read_problem("softmax", ["rows=512,cols=4096"], "fp16"), target("sm_90"))
    assert bound.size() == 12


def run_python(script: Path, folder: Path, *words: str) -> str:
    changes = {"TUNER_DB": f"sqlite:///{folder / 'tuner.db'}", "TUNER_CACHE": str(folder / "cache")}
    done = run(script, *words, env=environment(**changes), cwd=folder, limit_s=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_python_of_the_readme_runs(tmp_path):
    (program,) = [block for block in blocks("python") if "import tuner" in block]
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    lines = run_python(tmp_path / "program.py", tmp_path).splitlines()
    assert lines[0].startswith("template=")
    assert lines[-1].startswith("True 0.")


@pytest.mark.slow
def test_the_example_script_writes_a_file_that_stands_alone(tmp_path):
    said = run_python(checkout() / "examples/tune_softmax.py", tmp_path, "kernel.py")
    assert said.splitlines()[-1] == "wrote kernel.py"
    alone = {"TRITON_INTERPRET": "1"}
    done = run(tmp_path / "kernel.py", env=environment(**alone), cwd=tmp_path)
    assert done.stdout.strip().endswith("OK")


@pytest.mark.slow
def test_the_example_space_has_a_right_template(tmp_path):
    program = (
        "import tuner\n"
        'problem = tuner.make_problem("softmax", {"rows": 512, "cols": 4096}, "fp16")\n'
        f"report = tuner.check(problem, space={str(checkout() / 'examples/my_space/softmax.yaml')!r})\n"
        "print(report.passed, report.reason)\n"
    )
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    assert run_python(tmp_path / "program.py", tmp_path).split() == ["True"]
