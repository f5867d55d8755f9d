"""Tables of strangers: they are checked and written over without a file outside being read for long, or changed."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

import tuner
from tests.trust.attempts import files_below
from tests.trust.database_attacks import stranger
from tests.trust.table_attacks import FORMATS, attack_table, make_tables, rewritten, sidecar_of, table_path
from tuner.errors import UsageError
from tuner.exports.own_files import MOST_BYTES, is_inside, place, read

SEED = random.SystemRandom().randrange(2**32)
CASES = 24


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "tuner.db"
    stranger(path)
    return path


@pytest.fixture(scope="module")
def tables(database: Path) -> Path:
    folder = database.with_name("tables")
    make_tables(database, folder)
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", range(CASES))
def test_hostile_tables_do_no_harm(tables, database, tmp_path, case):
    print(f"seed {SEED}")
    (tmp_path / "outside").write_text("as it was")
    (tmp_path / "outside_folder").mkdir()
    attempts = attack_table(tables, database, tmp_path / "in", random.Random(f"{SEED}/{case}"))
    assert [(attempt.what, attempt.faults) for attempt in attempts if attempt.faults] == []
    assert files_below(tmp_path, but=(tmp_path / "in",)) == {"outside": b"as it was"}


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/outside", "./x", "a//b", "a\\b", "a\nb", "."])
def test_a_provenance_that_names_files_elsewhere_is_damaged_and_nothing_is_removed(tables, database, tmp_path, name):
    make_tables(database, tmp_path / "in")
    path = table_path(tmp_path / "in", "python")
    outside = tmp_path / "in" / "outside"
    outside.write_text("")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    named = name.replace("/outside", str(outside)) if name.startswith("/") else name
    rewritten(sidecar_of(path), lambda data: {**data, "files": {**data["files"], named: empty}})
    report = tuner.check_export(path, db=str(database))
    assert [(check.name, str(check.status)) for check in report.checks] == [("provenance", "missing")]
    with pytest.raises(UsageError, match=r"was changed since it was exported|leads out of|cannot read"):
        tuner.export("python", path, db=str(database))
    assert outside.read_text() == ""


def test_a_folder_that_is_a_link_is_not_written_through(database, tmp_path):
    target, elsewhere = tmp_path / "tuned_kernels", tmp_path / "elsewhere"
    target.mkdir()
    elsewhere.mkdir()
    (target / "variants").symlink_to(elsewhere)
    with pytest.raises(UsageError, match=r"variants/.* leads out of .*tuned_kernels"):
        tuner.export("python", target, db=str(database))
    assert os.listdir(elsewhere) == [] and os.listdir(target) == ["variants"]


def test_a_pipe_and_a_device_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(UsageError, match="cannot read"):
            read(path)
    assert read(tmp_path / "missing") is None


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(UsageError, match="more than 16 MiB"):
        read(tmp_path / "large")


@pytest.mark.parametrize("name", ["variants/a.py", "NVIDIA_H200/kernel.json", "__init__.py", "a.b-c d.json"])
def test_names_that_are_written_are_inside(tmp_path, name):
    assert is_inside(name)
    assert place(tmp_path, name) == tmp_path / name


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_exported_is_found_sound(tables, database, form):
    report = tuner.check_export(table_path(tables, form), db=str(database))
    assert {check.name: str(check.status) for check in report.checks}["files"] == "ok"
    assert json.loads(sidecar_of(table_path(tables, form)).read_text())["format"] == form
