"""A database's password is shown nowhere: not by a command, in JSON, an error or a log, nor in a worker's title."""

from __future__ import annotations

import os
import socket
import traceback
from pathlib import Path

import pytest

from tests.programs import environment, eventually, start
from tuner.cli import run as run_command
from tuner.doctor import Status, _database
from tuner.errors import StoreError
from tuner.regression.points import as_point
from tuner.search.storage import make_storage
from tuner.store.location import without_password
from tuner.store.store import Store

SECRET = "s3cr3t-Pa55"
SHAPE = ("softmax", "--shape", "rows=64,cols=64", "--dtype", "fp32")
COMMANDS = (
    ("studies",),
    ("show", "1"),
    ("best", *SHAPE),
    ("query",),
    ("query", "winners", "-o", "winners.csv"),
    ("regressions",),
    ("render", *SHAPE, "--best"),
    ("reproduce", "1"),
    ("export", "--format", "python", "--output", "kernels"),
    ("export", "--check", "--output", "kernels"),
    ("db", "check"),
)


@pytest.fixture(scope="module")
def closed_port() -> int:
    """A port at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def urls(port: int) -> list[str]:
    at = f"127.0.0.1:{port}/name"
    return [
        f"postgresql+psycopg://me:{SECRET}@{at}?connect_timeout=1",
        f"postgresql+psycopg://me@{at}?password={SECRET}&connect_timeout=1",
        f"postgresql+psycopg://me:{SECRET}@{at}?nonsense={SECRET}&passwd={SECRET}",
        f"postgresql+psycopg://me:{SECRET}@{at.replace('/name', 'x/name')}",
        f"postgresql:me:{SECRET}@{at}",
        f"me:{SECRET}@{at}",
        f"nonsense://me:{SECRET}@{at}",
        f"sqlite:///x.db?password={SECRET}",
    ]


@pytest.mark.parametrize("form", range(8))
@pytest.mark.parametrize("as_json", [False, True])
def test_no_command_shows_it_where_the_database_cannot_be_used(
    form, as_json, closed_port, tmp_path, monkeypatch, capfd, caplog
):
    monkeypatch.chdir(tmp_path)
    url = urls(closed_port)[form]
    for words in COMMANDS:
        more = ("--json",) if as_json and "-o" not in words else ()
        assert run_command([*words, *more, "--db", url]) in (1, 2), words
    out, err = capfd.readouterr()
    assert SECRET not in out + err + caplog.text
    assert "Traceback" not in err
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and SECRET in p.read_text(errors="replace")]


@pytest.mark.parametrize("form", range(8))
def test_no_error_of_the_api_holds_it_but_for_what_it_was_raised_from(form, closed_port):
    with pytest.raises(StoreError) as caught:
        Store.open(urls(closed_port)[form], busy_timeout_s=1.0)
    assert SECRET not in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown


def test_a_point_of_a_comparison_does_not_show_it(closed_port, capfd):
    point = as_point(f"db=postgresql+psycopg://me:{SECRET}@127.0.0.1:{closed_port}/x", "--before")
    assert point.label == f"db=postgresql+psycopg://me:***@127.0.0.1:{closed_port}/x"
    words = ("--before", f"db=postgresql+psycopg://me:{SECRET}@127.0.0.1:{closed_port}/x", "--after", "triton=3.6")
    assert run_command(["regressions", *words]) == 2
    assert run_command(["regressions", "--before", f"me:{SECRET}@host", "--after", "triton=3.6"]) == 2
    assert SECRET not in "".join(capfd.readouterr())


def test_the_doctor_does_not_show_it(closed_port):
    for url in urls(closed_port):
        check = _database(url)
        assert check.status is Status.MISSING
        assert SECRET not in f"{check.value} {check.remedy}"


def test_the_search_does_not_show_it(closed_port):
    """Optuna opens the database as well, and its messages go into ours."""
    for url in urls(closed_port)[:3]:
        with pytest.raises(StoreError, match="the search cannot use the database") as caught:
            make_storage(url)
        assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_processes_that_run_kernels_do_not_get_it(tmp_path, engine_spaces, cache):
    """Their environment and their title are looked at while they live. The parent's own is the caller's business."""
    database = tmp_path / f"{SECRET}.db"
    words = ("tune", *SHAPE, "--no-gpu", "--space", str(engine_spaces / "many.yaml"), "--trials", "3")
    env = environment(TUNER_CACHE=str(cache), TUNER_DB=str(database))
    program = start("-m", "tuner", *words, env=env, cwd=tmp_path)
    try:
        assert eventually(lambda: len(below(program.pid)) >= 2 or program.poll() is not None, 60)
        found = below(program.pid)
        assert found
        for pid in found:
            seen = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
            assert SECRET.encode() not in seen
    finally:
        program.kill()
        program.communicate()


def below(parent: int) -> list[int]:
    """The zygotes of a run: its children that have started Python anew."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            stat = Path(f"/proc/{entry}/stat").read_text() if entry.isdigit() else ""
            command = Path(f"/proc/{entry}/cmdline").read_bytes() if stat else b""
        except OSError:
            continue
        if stat and int(stat[stat.rindex(")") + 2 :].split()[1]) == parent and b"zygote" in command:
            found.append(int(entry))
    return found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:a:b/c@d@host/x", "postgresql://me:***@host/x"),
        ("postgresql://me@host/x", "postgresql://me@host/x"),
        ("postgresql://host/x?user=me&password=a&sslpassword=b", "postgresql://host/x?user=me&password=***&sslpassword=***"),
        ("sqlite:////tmp/x.db", "sqlite:////tmp/x.db"),
        ("/tmp/x.db", "/tmp/x.db"),
        ("me:secret@host", "***@host"),
        ("postgresql:me:secret@host", "***@host"),
    ],
)  # fmt: skip
def test_a_url_is_shown_without_it(text, shown):
    assert without_password(text) == shown
