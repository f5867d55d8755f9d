"""Bad input of every kind: exit code 2, one clear line on stderr, nothing on stdout, and the database as it was."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs import environment, run
from tuner.store.store import Store

SHAPE = ("--shape", "rows=64,cols=100")
TUNE = ("tune", "softmax", *SHAPE, "--dtype", "fp32")
SPACE = """\
operator: softmax
templates:
  small:
    source: small.py
    switches:
      DIVIDE: [true, false]
    parameters:
      num_warps: [1, 2]
    derived:
      BLOCK_COLS: next_power_of_2(cols)
    tiles: {cols: BLOCK_COLS}
    plain: {DIVIDE: true, num_warps: 1}
"""
SPACES = Path(__file__).parent / "spaces_engine"


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file of ``folder`` with a hash of its bytes. Reading a database makes empty side files beside it."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    files = [path for path in files if path.stat().st_size or not path.name.endswith("-wal")]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a database with the newest schema."""
    path = tmp_path_factory.mktemp("filled") / "tuner.db"
    Store.open(str(path)).close()
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path: Path, filled: bytes) -> Path:
    """Where the command runs, with a database ``tuner.db``."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "tuner.db").write_bytes(filled)
    return place


@pytest.fixture
def refused(folder: Path, cache: Path) -> Callable[..., str]:
    """Runs the command line on input that it must refuse; returns the one line that it says."""

    def check(*words: str, first: tuple[Path, ...] = (), env: dict[str, str] | None = None) -> str:
        before = fingerprint(folder)
        settings = {"TUNER_CACHE": str(cache), "TUNER_DB": f"sqlite:///{folder / 'tuner.db'}", **(env or {})}
        done = run("-m", "tuner", *words, "--json", env=environment(*first, **settings), cwd=folder)
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stderr.startswith("error: ")
        assert done.returncode == 2, done.stderr
        assert fingerprint(folder) == before
        return done.stderr.removeprefix("error: ").rstrip("\n")

    return check


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tune", "sofmax", *SHAPE, "--dtype", "fp32"), "did you mean softmax?"),
        (("tune", "softmax", "--shape", "rows=64,colums=100", "--dtype", "fp32"), "colums"),
        (("tune", "softmax", "--shape", "rows=64", "--dtype", "fp32"), "cols"),
        (("tune", "softmax", "--shape", "rows=64,cols=1e3", "--dtype", "fp32"), "cols must be a whole number"),
        (("tune", "softmax", "--shape", "rows=64,cols=-5", "--dtype", "fp32"), "cols"),
        (("tune", "softmax", "--shape", "rows=64,cols=99999999999", "--dtype", "fp32"), "cols must be between 1 and"),
        (("tune", "softmax", "--shape", "rows64", "--dtype", "fp32"), "write NAME=VALUE"),
        (("tune", "softmax", *SHAPE, "--dtype", "fp8"), "fp8"),
        (("tune", "softmax", *SHAPE), "--dtype is missing; softmax takes"),
        (("tune",), "what is to be tuned?"),
        ((*TUNE, "--trials", "0"), "--trials must be between 1 and 1000000000, but got 0"),
        ((*TUNE, "--trials", "many"), "Invalid value for '--trials'"),
        ((*TUNE, "--time", "0"), "--time must be more than zero"),
        ((*TUNE, "--time", "nan"), "--time: cannot read 'nan'"),
        ((*TUNE, "--time", "-5"), "--time: cannot read '-5'"),
        ((*TUNE, "--sampler", "tpee"), "did you mean tpe?"),
        ((*TUNE, "--target", "h300"), "h300"),
        ((*TUNE, "--seed", "-1"), "seed"),
        ((*TUNE, "--space", "missing.yaml"), "missing.yaml"),
        ((*TUNE, "--speed", "11"), "--speed"),
        (("tune", "--problems", "missing.yaml"), "missing.yaml"),
        (("show", "softmax-nowhere"), "there is no study in this database yet"),
        (("render", "softmax", *SHAPE, "--dtype", "fp32", "--config", "BLOCK=1"), "has no parameter `BLOCK`"),
        (("render", "softmax", *SHAPE, "--dtype", "fp32", "--config", "template=onlin"), "did you mean `online`?"),
        (("render", "softmax", *SHAPE, "--dtype", "fp32", "--config", "num_warps=7"), "its choices are"),
        (("render", "softmax", *SHAPE, "--dtype", "fp32", "--triton-version", "1.0"), "1.0"),
        (("query", "winers"), "did you mean winners?"),
        (("query", "--sort", "tme_us"), "did you mean time_us?"),
        (("query", "--shape", "colz=1024..8192"), "did you mean cols?"),
        (("regressions",), "no results can be compared yet"),
        (("regressions", "--before", "tritn=3.6"), "--before: there is no 'tritn'; did you mean triton?"),
        (("regressions", "--fail-over", "much"), "--fail-over: cannot read 'much'"),
        (("regressions", "--before", "db=nowhere.db"), "there is no database at"),
        (("reproduce", "7"), "there is no measurement 7"),
    ],
)  # fmt: skip
def test_words_that_mean_nothing(refused, words, said):
    assert said in refused(*words)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SPACE.replace("switches:", "switches: ["), "own.yaml:"),
        (SPACE.replace("    tiles:", "    tilse:"), "own.yaml:11: templates.small.tilse: "),
        (SPACE.replace("operator: softmax", "operator: softmacs"), "own.yaml:1: operator: "),
        (SPACE.replace("[1, 2]", "[]"), "own.yaml:8: templates.small.parameters.num_warps: "),
        (SPACE + "    constraints: [num_wraps <= 4]\n", "own.yaml:13: templates.small.constraints"),
        (SPACE + "    constraints: ['__import__(\"os\").getpid() > 0']\n", "own.yaml:13: templates.small.constraints"),
        (SPACE.replace("source: small.py", "source: smal.py"), "smal.py"),
        (SPACE.replace("num_warps", "num_wraps"), "num_wraps"),
        ("", "own.yaml"),
    ],
)  # fmt: skip
def test_a_search_space_with_a_mistake_is_refused_with_its_place(refused, folder, text, said):
    (folder / "own.yaml").write_text(text)
    (folder / "small.py").write_bytes((SPACES / "small.py").read_bytes())
    assert said in refused(*TUNE, "--space", "own.yaml")


def test_a_template_that_is_not_python_is_refused_with_file_and_line(refused, folder):
    (folder / "own.yaml").write_text(SPACE)
    (folder / "small.py").write_text("import triton\n\ndef launch(x, out, *, DIVIDE, num_warps:\n    pass\n")
    assert "small.py:3: " in refused(*TUNE, "--space", "own.yaml", "--no-gpu")


def test_a_problems_file_that_cannot_be_read_is_refused(refused, folder):
    (folder / "problems.yaml").write_bytes(b"\xff\xfe\x00 not text \x80")
    assert "problems.yaml" in refused("tune", "--problems", "problems.yaml")
    (folder / "problems.yaml").write_text(
        "problems:\n  - operator: softmax\n    dtype: fp32\n    shape: {rows: 1, cols: x}\n"
    )
    assert "problems.yaml:4" in refused("tune", "--problems", "problems.yaml")


def test_a_config_that_is_not_in_the_space_is_refused(refused):
    words = ("render", "softmax", *SHAPE, "--dtype", "fp32", "--space", str(SPACES / "small.yaml"))
    assert "num_warps=64 is not in the search space" in refused(*words, "--config", "num_warps=64")


def test_a_database_that_is_a_folder_is_refused(refused, folder):
    (folder / "folder.db").mkdir()
    assert "folder.db" in refused(*TUNE, "--db", str(folder / "folder.db"))


def test_a_text_file_is_no_database(refused, folder):
    (folder / "notes.db").write_text("these are my notes\n" * 100)
    assert "is not a SQLite database" in refused(*TUNE, "--db", str(folder / "notes.db"))


def test_a_database_in_a_folder_that_does_not_exist_is_refused(refused, folder):
    assert "does not exist" in refused(*TUNE, "--db", str(folder / "nowhere" / "tuner.db"))


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/self").exists(), reason="needs a folder that refuses root")
def test_a_database_in_a_folder_that_cannot_be_written_is_refused(refused, folder):
    if os.geteuid() == 0:
        place = "/proc/self/tuner.db"  # where not even root may make a file
    else:
        (folder / "closed").mkdir(mode=0o500)
        place = str(folder / "closed" / "tuner.db")
    assert "tuner.db" in refused(*TUNE, "--db", place)


def test_somebody_elses_database_is_refused_and_stays_as_it_was(refused, folder):
    path = folder / "music.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE alembic_version (version_num TEXT)")
        other.execute("CREATE TABLE tuner_study (name TEXT)")
        other.execute("INSERT INTO tuner_study VALUES ('Kind of Blue')")
    other.close()
    assert "music.db" in refused(*TUNE, "--db", str(path))


def test_a_database_from_the_future_is_refused_with_both_revisions(refused, folder):
    path = folder / "tuner.db"
    with sqlite3.connect(path) as other:
        other.execute("UPDATE tuner_alembic_version SET version_num = '0999'")
        other.execute("PRAGMA journal_mode = DELETE")
    other.close()
    said = refused(*TUNE)
    assert "newer version" in said and "'0999'" in said
    assert "'0999'" in refused("studies")


def test_a_damaged_database_is_refused(refused, folder):
    path = folder / "tuner.db"
    path.write_bytes(path.read_bytes()[:6000])
    assert "damaged" in refused(*TUNE)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nosql://there/it", "'nosql' is not known"),
        ("mysql+nodriver://there/it", "not known"),
        ("tuner.txt", "neither a database URL nor a path"),
        ("sqlite:///file:x.db?mode=ro", "not supported"),
    ],
)
def test_a_database_url_that_names_nothing_is_refused(refused, url, said):
    assert said in refused(*TUNE, "--db", url)


def test_a_password_in_a_url_is_never_shown(refused):
    assert "hunter2" not in refused("best", "softmax", *SHAPE, "--dtype", "fp32", "--db", "nosql://me:hunter2@there/it")


def test_a_gpu_that_is_insisted_on_and_not_there(refused):
    said = refused(*TUNE, "--gpu", env={"CUDA_VISIBLE_DEVICES": ""})
    assert said.startswith("no GPU was found here; ")


def test_a_missing_triton_is_said_before_anything_is_started(refused, tmp_path):
    # A finder that hides triton from this process and its children, and knows of no installed distribution.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.metadata, sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'triton' or name.startswith('triton.'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    said = refused(*TUNE, "--no-gpu", first=(tmp_path,))
    assert said.startswith("Triton is not installed; install it with `pip install triton`")


def test_a_triton_that_cannot_be_imported_is_said_with_the_reason(refused, tmp_path):
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise ImportError('libcuda.so.1: cannot open shared object')\n")
    said = refused(*TUNE, "--no-gpu", first=(tmp_path,))
    assert "this machine cannot compile kernels" in said
    assert "libcuda.so.1: cannot open shared object" in said


def test_a_cache_folder_that_cannot_be_made_is_refused(refused, folder):
    (folder / "file").write_text("")
    said = refused(*TUNE, "--no-gpu", env={"TUNER_CACHE": str(folder / "file" / "cache")})
    assert "set TUNER_CACHE to a writable folder" in said
