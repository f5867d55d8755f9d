"""Faults done to the database's files themselves: power cuts, damage, and clocks that step back."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tuner.store.rows
from tests.exports.stored_winners import softmax, store_winner
from tests.faults.damage import DAMAGES, damage
from tests.faults.studies import Injected
from tests.programs import environment
from tests.trust.attempts import command
from tuner import upkeep
from tuner.errors import TunerError
from tuner.store.store import Store

STORE = Path(__file__).parents[1] / "store"
CONFIGS = [f"template=whole_row,num_warps={warps}" for warps in (1, 2, 4, 8)]


class Writer:
    """A process that stores trials without end; ``stop`` freezes it and says what it has reported as committed."""

    def __init__(self, database: Path) -> None:
        self.said: set[int] = set()
        self._rest = b""
        self.process = subprocess.Popen(
            [sys.executable, "-B", str(STORE / "store_script.py"), "write", str(database), "0", "100000", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(STORE),
        )
        assert self.process.stdout is not None
        self._out = self.process.stdout.fileno()
        self._read(os.read(self._out, 4096))
        os.set_blocking(self._out, False)

    def _read(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.said |= {int(line) for line in lines}

    def stop(self) -> None:
        """Freezes it, wherever it is, and reads what it said before."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        while True:
            try:
                data = os.read(self._out, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                return
            self._read(data)

    def go_on(self) -> None:
        """Lets it go on."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.communicate()


def frames(log: bytes) -> Iterator[tuple[int, int, bool]]:
    """The valid frames of a write-ahead log (sqlite.org/fileformat.html): offset, page, whether it ends a commit."""
    if len(log) < 32:
        return
    magic, _, size, _, salt1, salt2, sum1, sum2 = struct.unpack(">8I", log[:32])
    order = ">" if magic & 1 else "<"

    def checksum(data: bytes, s0: int, s1: int) -> tuple[int, int]:
        words = struct.unpack(f"{order}{len(data) // 4}I", data)
        for a, b in zip(words[::2], words[1::2], strict=True):
            s0 = (s0 + a + s1) & 0xFFFFFFFF
            s1 = (s1 + b + s0) & 0xFFFFFFFF
        return s0, s1

    at = 32
    while at + 24 + size <= len(log):
        page, commit, f1, f2, c1, c2 = struct.unpack(">6I", log[at : at + 24])
        sum1, sum2 = checksum(log[at : at + 8], sum1, sum2)
        sum1, sum2 = checksum(log[at + 24 : at + 24 + size], sum1, sum2)
        if (f1, f2) != (salt1, salt2) or (c1, c2) != (sum1, sum2):
            return
        yield at, page, bool(commit)
        at += 24 + size


def power_cut(database: Path, copy: Path, chance: random.Random) -> str:
    """Copies what a disk may hold after a power cut: file and log, with what was not synced yet torn. Says what."""
    shutil.copyfile(database, copy)
    log = database.with_name(database.name + "-wal")
    data = log.read_bytes() if log.exists() else b""
    found = list(frames(data))
    size = struct.unpack(">I", data[8:12])[0] if found else 4096
    ends = [at + 24 + size for at, _, commit in found if commit]
    # A commit is synced before it returns. What follows the last one may be there, torn, or anything.
    synced = ends[-1] if ends else min(len(data), 32)
    tail = data[synced:]
    how = chance.choice(("as it is", "cut", "torn", "garbage", "zeros"))
    if how == "cut":
        tail = tail[: chance.randint(0, len(tail))]
    elif how == "torn":
        tail = (tail or chance.randbytes(24 + size))[: 24 + 512 * chance.randint(0, size // 512)]
    elif how == "garbage":
        tail = chance.randbytes(chance.randint(0, 3 * size))
    elif how == "zeros":
        tail = bytes(chance.randint(0, 3 * size))
    copy.with_name(copy.name + "-wal").write_bytes(data[:synced] + tail)
    # While the log is copied into the file, pages of the file may be torn; all of them are in the log. (Not the first:
    # its header is one sector, which a disk writes whole.)
    pages = sorted({page for at, page, _ in found if page > 1 and at < synced})
    torn = chance.sample(pages, min(len(pages), chance.randint(0, 3)))
    with copy.open("r+b") as file:
        for page in torn:
            if page * size <= copy.stat().st_size:
                file.seek((page - 1) * size + 512 * chance.randrange(size // 512))
                file.write(chance.randbytes(512))
    return f"{how}, {len(torn)} pages torn"


def after_power_cut(copy: Path, said: set[int], what: str) -> Injected:
    """Opens what the disk held, and goes on."""
    problems = []
    lost = 0
    try:
        with Store.open(str(copy)) as store:
            stored = {
                dict(trial.trial.config.launch)["BLOCK_COLS"]
                for study in store.studies()
                for trial in store.study(study.id).trials
            }
            lost = len(said - {int(block) for block in stored})
        found = upkeep.check_database(db=str(copy))
        problems += [f"{f.kind} {f.where}: {f.problem}" for f in found.findings]
    except TunerError as error:
        lost = len(said)
        problems.append(str(error))
    if lost:
        problems.append(f"{lost} trials lost")
    return Injected("power cut", True, lost, tuple(f"{problem} ({what})" for problem in problems))


def power_cuts(folder: Path, chance: random.Random, count: int) -> Iterator[Injected]:
    """``count`` power cuts at random moments of one writer."""
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "tuner.db"
    writer = Writer(database)
    try:
        for number in range(count):
            writer.go_on()
            signal.sigtimedwait([], chance.uniform(0.0, 0.05))
            writer.stop()
            place = folder / f"cut{number}"
            place.mkdir()
            what = power_cut(database, place / "tuner.db", chance)
            yield after_power_cut(place / "tuner.db", set(writer.said), what)
            shutil.rmtree(place)
    finally:
        writer.kill()


def content(database: Path) -> list[tuple[object, ...]] | None:
    """Every row of every table of ours; None where it cannot be read."""
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True)
        connection.text_factory = bytes
        try:
            names = [n.decode() for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return [
                (name, *row)
                for name in sorted(names)
                if name.startswith("tuner_")
                for row in connection.execute(f'SELECT * FROM "{name}" ORDER BY rowid')
            ]
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def base_database(path: Path) -> None:
    """A database that is at rest, to be damaged."""
    store_winner(path, softmax(64, 1024), *CONFIGS)
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()


def damaged_database(base: Path, folder: Path, chance: random.Random) -> Injected:
    """The file is damaged while nobody uses it: said by ``tuner db check``, or nothing of it is another."""
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "tuner.db"
    database.write_bytes(base.read_bytes())
    how = chance.choice([how for how in DAMAGES if how != "deleted"])
    damage(database, how, chance)
    problems = []
    checked = command("db", "check", "--db", str(database))
    for attempt in (checked, *(command(*words, "--db", str(database)) for words in (("studies",), ("show", "1")))):
        problems += [f"{attempt.what}: {fault}" for fault in attempt.faults]
    same = content(database) == content(base)
    if checked.code == 0 and not same:
        problems.append(f"{how}: other content, and nothing was said")
    return Injected("database file damaged", True, 0, tuple(problems))


def damaged_log(folder: Path, chance: random.Random) -> Injected:
    """The write-ahead log of a killed process is damaged: what it held from there on is lost, and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "tuner.db"
    writer = Writer(database)
    signal.sigtimedwait([], chance.uniform(0.0, 0.2))
    writer.stop()
    writer.kill()
    log = database.with_name("tuner.db-wal")
    how = chance.choice(DAMAGES)
    if log.exists() and log.stat().st_size:
        damage(log, how, chance)
    done = after_power_cut(database, set(writer.said), how)
    # What a damaged log held is lost with it; everything else must hold. The first migration may be among it.
    problems = [p for p in done.problems if "trials lost" not in p and "holds no results" not in p]
    return Injected("write-ahead log damaged", True, done.lost, tuple(problems))


def clock_backwards(folder: Path, chance: random.Random, patch: Callable[[Any, str, Any], None]) -> Injected:
    """The clock steps back and forth between writes: the order of what was stored is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "tuner.db"

    class Stepping(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz or UTC) + timedelta(seconds=chance.uniform(-7200, 7200))

    patch(tuner.store.rows, "datetime", Stepping)
    problems = []
    orders = [chance.sample(CONFIGS, len(CONFIGS)) for _ in range(4)]
    for order in orders:
        store_winner(database, softmax(64, 1024), *order)
    with Store.open(str(database)) as store:
        winner = store.best(softmax(64, 1024), None)
        last = orders[-1][0].partition("num_warps=")[2]
        if winner is None or str(winner.config.values["num_warps"]) != last:
            problems.append(f"the winner is {winner and winner.config.label}, and {last} warps won last")
        (study,) = store.studies()
        trials = len(store.study(study.id).trials)
        if trials != len(CONFIGS) or study.state != "finished":
            problems.append(f"{trials} trials, {study.state}")
    problems += [f.problem for f in upkeep.check_database(db=str(database)).findings]
    return Injected("clock steps back", True, 0, tuple(problems))
