from __future__ import annotations

import re
import resource
import subprocess
import sys

import pytest

from tuner.cli import run

COMMANDS = (
    "doctor",
    "operators",
    "tune",
    "coverage",
    "best",
    "studies",
    "show",
    "importance",
    "query",
    "regressions",
    "remeasure",
    "reproduce",
    "export",
    "render",
    "check",
    "time",
    "replay",
    "record",
    "capture",
)
HEAVY = ("torch", "triton", "optuna", "sqlalchemy", "alembic", "libcst", "pydantic", "numpy", "yaml", "rich")


def cpu_seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run([*words, "--help"]) == 0
    return capsys.readouterr().out


def test_every_command_is_listed(capsys):
    listed = help_of(capsys).split("Commands:")[1]
    assert [line.split()[0] for line in listed.strip().splitlines()] == [*COMMANDS, "db"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_the_common_options(capsys, name):
    text = help_of(capsys, name)
    example = text.split("Example:")[1].split("Options:")[0]
    assert f"tuner {name}" in example
    assert "--db URL" in text and "--json" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_the_values_of_options_and_not_their_types(capsys, name):
    text = help_of(capsys, name)
    assert "[[" not in text
    assert not re.findall(r"--\S+ <", text)


def test_the_group_of_database_commands_has_an_example(capsys):
    assert "tuner db check" in help_of(capsys, "db").split("Example:")[1].split("Options:")[0]


def test_without_arguments_the_help_is_shown(capsys):
    assert run([]) == 0
    assert "Commands:" in capsys.readouterr().out


# Typer parses a command's arguments with pydantic in its newer versions; that is its own choice, and takes 30 ms.
@pytest.mark.parametrize(("words", "allowed"), [(("--help",), ()), (("tune", "--help"), ("pydantic",))])
def test_help_loads_nothing_heavy_and_is_quick(words, allowed):
    program = (
        "import sys\n"
        "from tuner.cli import run\n"
        f"run({list(words)!r})\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules and m not in {allowed!r}], file=sys.stderr)\n"
    )
    seconds = []
    for _ in range(3):
        start = cpu_seconds_of_children()  # on an idle machine, the wall time; it does not fail on a busy one
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        seconds.append(cpu_seconds_of_children() - start)
        assert ran.stderr.strip() == "[]"
    assert min(seconds) < 0.3


def test_python_dash_m_tuner_is_the_same_command():
    ran = subprocess.run([sys.executable, "-m", "tuner", "bset"], capture_output=True, text=True)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: No such command")
