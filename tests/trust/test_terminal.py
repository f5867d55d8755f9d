"""Nothing that is printed acts on the terminal, wherever its text came from."""

from __future__ import annotations

import json

import pytest

from tests.trust.hostile import ACTING, HOSTILE_TEXTS
from tuner.cli.output import note, print_data, print_json, say
from tuner.cli.tables import print_facts, print_table
from tuner.terminal import harmless


def acts(text: str) -> set[str]:
    """The characters of ``text`` that act on a terminal."""
    return {character for character in text if character in ACTING}


def test_escape_sequences_are_written_as_they_are_in_python():
    assert harmless("a\x1b[31mred\x9bm\u202eb\ud800\r\nc\td") == r"a\x1b[31mred\x9bm\u202eb\ud800\x0d" + "\nc\td"


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_every_way_to_print_leaves_the_terminal_alone(text, capsys):
    say(text)
    note(text)
    print_table(text, ("column",), [(text,)])
    print_facts([("name", text)])
    out, err = capsys.readouterr()
    assert acts(out) == acts(err) == set()


def test_markup_is_text():
    assert harmless("[bold red]x[/]") == "[bold red]x[/]"


def test_markup_in_a_table_is_shown_and_not_obeyed(capsys):
    print_table("[bold]t", ("column",), [("[link=file:///etc/passwd]x[/link]",)])
    out = capsys.readouterr().out
    assert "[bold]t" in out and "[link=file:///etc/passwd]x[/link]" in out


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_json_says_the_same_and_has_nothing_raw(text, capsys):
    print_json({"text": text, text: 1})
    out = capsys.readouterr().out
    assert acts(out) == set()
    assert json.loads(out) == {"text": text, text: 1}


class _Stream:
    def __init__(self, terminal: bool) -> None:
        self.terminal, self.text = terminal, ""

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(("terminal", "printed"), [(True, "x = '\\x1b[2J'\n"), (False, "x = '\x1b[2J'\n")])
def test_a_source_is_changed_for_a_terminal_only(terminal, printed, monkeypatch):
    stream = _Stream(terminal)
    monkeypatch.setattr("sys.stdout", stream)
    print_data("x = '\x1b[2J'\n")
    assert stream.text == printed
