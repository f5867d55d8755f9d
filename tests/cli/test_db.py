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


def test_every_command_answers_in_words_and_in_json(db, cli, tmp_path):
    other = str(tmp_path / "other.db")
    Store.open(other).close()
    for words, said in (
        (("upgrade",), "the newest already"),
        (("backup", "-o", str(tmp_path / "copy.db")), f"wrote {tmp_path}/copy.db ("),
        (("merge", other), f"merged {other} into {db}: 0 rows added"),
        (("prune", "--before", "2026-01-01"), "would delete 0 trials, about 0 B; say --yes"),
        (("prune", "--before", "2026-01-01", "--yes"), "deleted 0 trials, about 0 B"),
        (("stats",), "KiB; schema "),
    ):
        ran = cli("db", *words, "--db", db)
        assert (ran.code, ran.err) == (0, ""), words
        assert said in ran.out
        (tmp_path / "copy.db").unlink(missing_ok=True)
        document = json.loads(cli("db", *words, "--db", db, "--json").out)
        assert document["database"] == db


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("backup",), "Missing option '--output'"),
        (("prune",), "Missing option '--before'"),
        (("prune", "--before", "soon"), "--before: cannot read 'soon'"),
        (("merge",), "Missing argument 'OTHER'"),
        (("merge", "none.db"), "none.db yet; run `tuner tune` first, or name another\n"),
    ],
)
def test_bad_input_is_one_line(db, cli, words, said):
    ran = cli("db", *words, "--db", db)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err


def test_a_merge_says_that_sources_are_not_run_unseen(db, cli):
    with Store.open(db) as store, store._database.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO tuner_variant VALUES ('h', 'softmax', 't', 't', '{}', '', 's', '2026-01-01', 'elsewhere.db')"
        )
    assert "1 sources come from other databases" in cli("db", "stats", "--db", db).err
