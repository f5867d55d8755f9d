from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from store_samples import VARIANT, fingerprint, spec, timed

from tuner.errors import StoreError
from tuner.store.location import default_path, default_url
from tuner.store.migrating import HEAD
from tuner.store.store import Store


def filled(path: Path) -> Path:
    with Store.open(str(path)) as store:
        study = store.start_study(spec())
        for block in range(20):
            store.record_trial(study.id, timed(block), VARIANT)
        store.finish_study(study.id, "finished", 1.0, 0.5)
    return path


def refused(path: Path, **how: object) -> str:
    """Opens a database that cannot be used; returns what was said. The file and its neighbours are as they were."""
    before, neighbours = fingerprint(path), sorted(os.listdir(path.parent))
    with pytest.raises(StoreError) as caught:
        Store.open(str(path), busy_timeout_s=0.2, **how)  # type: ignore[arg-type]
    assert fingerprint(path) == before
    assert sorted(os.listdir(path.parent)) == neighbours
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach (pytest's own are private)."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def without_root() -> Iterator[None]:
    """As an ordinary user, whom permissions hold back."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def test_a_new_file_is_in_wal_mode_and_its_connections_enforce_foreign_keys(store: Store, path: Path) -> None:
    with sqlite3.connect(path) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert other.execute("SELECT version_num FROM tuner_alembic_version").fetchone() == (HEAD,)
    other.close()

    def pragmas(connection: object) -> list[object]:
        names = ("foreign_keys", "busy_timeout", "synchronous")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]  # type: ignore[attr-defined]

    assert store._database.read(pragmas) == [1, 60_000, 2]


@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_a_bare_path_and_a_url_name_the_same_file(path: Path, prefix: str) -> None:
    with Store.open(f"{prefix}{path}") as store:
        assert store.url == f"sqlite:///{path}"
        assert store.label == str(path)
    assert path.exists()


def test_a_database_in_memory_works_within_the_process() -> None:
    with Store.open("sqlite://") as store:
        study = store.start_study(spec())
        store.record_trial(study.id, timed(1), VARIANT)
        assert store.studies()[0].trials == 1


def test_the_default_is_the_environment_variable_else_the_users_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNER_DB", raising=False)
    assert default_url() == f"sqlite:///{default_path()}"
    assert default_path().parts[-2:] == ("tuner", "tuner.db")
    monkeypatch.setenv("TUNER_DB", "postgresql://there/it")
    assert default_url() == "postgresql://there/it"


def test_the_default_folder_is_made_and_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("TUNER_DB", raising=False)
    if tmp_path not in default_path().parents:
        pytest.skip("the data folder of this system cannot be moved")
    Store.open(default_url()).close()
    assert default_path().exists()
    with pytest.raises(StoreError, match="does not exist; create it"):
        Store.open(str(tmp_path / "missing" / "tuner.db"))
    assert not (tmp_path / "missing").exists()


def test_a_text_file_is_refused(path: Path) -> None:
    path.write_text("these are my notes, not a database\n" * 10)
    assert refused(path).endswith("is not a SQLite database; name another file with --db")


def test_a_damaged_database_is_refused(path: Path) -> None:
    data = bytearray(filled(path).read_bytes())
    for page in range(2, len(data) // 4096, 3):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)
    assert "damaged" in refused(path)


def test_damage_in_a_page_that_opening_need_not_read_is_found(path: Path) -> None:
    data = bytearray(filled(path).read_bytes())
    starts = range(4096, len(data), 4096)
    page = next(at for at in starts if data[at] == 13 and b"BLOCK_COLS" in data[at : at + 4096])
    data[page + 3 : page + 5] = b"\xff\xff"  # how many rows the leaf page holds
    path.write_bytes(data)
    assert "damaged" in refused(path)


def test_a_truncated_database_is_refused(path: Path) -> None:
    data = filled(path).read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert "damaged" in refused(path)


def test_a_schema_from_the_future_is_refused_with_both_revisions(path: Path) -> None:
    filled(path)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE tuner_alembic_version SET version_num = '0999'")
    other.close()
    said = refused(path)
    assert "newer version" in said and "'0999'" in said and repr(HEAD) in said and "upgrade" in said


def test_tables_of_ours_without_a_revision_are_refused(path: Path) -> None:
    filled(path)
    with sqlite3.connect(path) as other:
        other.execute("DELETE FROM tuner_alembic_version")
    other.close()
    assert "no schema revision" in refused(path)


def test_another_programs_database_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE invoices (id INTEGER)")
    other.close()
    assert "belongs to another program (table 'invoices')" in refused(path)


def test_a_locked_database_is_refused_after_the_timeout(path: Path) -> None:
    filled(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN EXCLUSIVE")
    try:
        before = fingerprint(path)
        with pytest.raises(StoreError, match="another process keeps the database locked"):
            Store.open(str(path), busy_timeout_s=0.2)
        assert fingerprint(path) == before
    finally:
        other.close()


def test_a_write_waits_for_a_lock_and_then_says_so(path: Path) -> None:
    filled(path)
    other = sqlite3.connect(path, isolation_level=None)
    with Store.open(str(path), busy_timeout_s=0.2) as store:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process keeps the database locked"):
            store.start_study(spec())
        other.execute("ROLLBACK")
        assert store.start_study(spec()).resumed
    other.close()


@pytest.mark.parametrize("how", [{"create": False}, {"write": False}])
def test_a_missing_database_is_not_made_where_only_results_are_asked_for(path: Path, how: dict[str, bool]) -> None:
    with pytest.raises(StoreError, match=r"no database at .* yet; run `tuner tune` first"):
        Store.open(str(path), **how)  # type: ignore[arg-type]
    assert not path.exists()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.db").mkdir()
    with pytest.raises(StoreError, match="is a folder"):
        Store.open(str(tmp_path / "results.db"))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody may create files")
def test_a_file_that_cannot_be_created_is_refused() -> None:
    with pytest.raises(StoreError, match=r"^/proc/tuner\.db"):
        Store.open("/proc/tuner.db")


def test_an_unwritable_file_is_refused_for_writing_and_good_for_reading(open_folder: Path) -> None:
    path = filled(open_folder / "tuner.db")
    path.chmod(0o444)
    open_folder.chmod(0o555)
    before = fingerprint(path)
    with without_root():
        with Store.open(str(path), create=False, write=False) as store:
            assert store.studies()[0].trials == 20
        with pytest.raises(StoreError, match="may not be written"):
            Store.open(str(path))
    assert fingerprint(path) == before
    assert os.listdir(open_folder) == ["tuner.db"]


def test_an_unwritable_folder_is_refused_for_a_new_file(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with without_root(), pytest.raises(StoreError, match=r"the folder .* may not be written"):
        Store.open(str(open_folder / "tuner.db"))
    assert os.listdir(open_folder) == []


def test_reading_leaves_the_file_as_it_was(path: Path) -> None:
    before = fingerprint(filled(path))
    with Store.open(str(path), create=False, write=False) as store:
        assert store.studies()[0].trials == 20
        with pytest.raises(StoreError, match="cannot be written"):
            store.start_study(spec())
    assert fingerprint(path) == before


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("results", "neither a database URL nor a path"),
        ("postgres://user:secret@host/name", "'postgres' is not known"),
        ("mssql+pymssql://user:secret@host/name", "needs the Python package pymssql"),
        ("nonsense://user:secret@host/name?password=secret", "'nonsense' is not known"),
        ("postgresql://user:secret@host:port/name", "the postgresql:// database URL cannot be read"),
        ("sqlite:///file.db?mode=ro", "options in a sqlite:/// URL are not supported"),
        ("sqlite+aiosqlite:///file.db", "use sqlite:///"),
    ],
)
def test_a_url_that_means_nothing_is_refused_without_its_password(url: str, said: str) -> None:
    with pytest.raises(StoreError) as caught:
        Store.open(url)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
