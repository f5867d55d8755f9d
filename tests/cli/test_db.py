"""``tuner db``, on real databases."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tuner.store.store import Store


@pytest.fixture
def db(tmp_path: Path) -> str:
    path = tmp_path / "tuner.db"
    Store.open(str(path)).close()
    return str(path)


def test_a_sound_database_is_said_to_be_sound(db, cli):
    ran = cli("db", "check", "--db", db)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{db}: sound (0 rows, schema ")
    assert json.loads(cli("db", "check", "--db", db, "--json").out)["sound"] is True


def test_an_unsound_one_is_an_honest_no_with_what_is_wrong_where(db, cli):
    with sqlite3.connect(db) as other:
        other.execute("DROP VIEW winners")
    other.close()
    ran = cli("db", "check", "--db", db)
    assert ran.code == 1
    assert "the view winners is missing" in " ".join(ran.out.split())
    assert ran.err == f"{db}: 1 wrong\n"
    ran = cli("db", "check", "--db", db, "--json")
    assert ran.code == 1
    assert [f["kind"] for f in json.loads(ran.out)["findings"]] == ["schema"]


def test_without_a_command_or_a_database_it_is_bad_input(cli, tmp_path):
    for words in (("db",), ("db", "chekc"), ("db", "check", "--db", str(tmp_path / "none.db"))):
        ran = cli(*words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), words
        assert ran.err.startswith("error: ")
