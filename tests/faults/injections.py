"""Faults, done to real studies at random moments. Each returns what became of it; ``KINDS`` has them by name."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.studies import TRIALS, Injected, Study, kill_worker, one_line, outcome, wait_until_stored, workers
from tests.programs import eventually, is_alive

Injection = Callable[[Path, Path, random.Random], Injected]


def _study(folder: Path, cache: Path, chance: random.Random) -> Study:
    folder.mkdir(parents=True, exist_ok=True)
    return Study(folder, cache, cols=chance.choice((100, 228, 300, 700, 1100)))


def _started(study: Study, chance: random.Random) -> subprocess.Popen[str]:
    program = study.start()
    wait_until_stored(study, program, chance.randint(1, TRIALS - 3))
    time.sleep(chance.uniform(0.0, 0.3))
    return program


def kill_parent(folder: Path, cache: Path, chance: random.Random) -> Injected:
    """``kill -9`` of the process that searches and stores."""
    study = _study(folder, cache, chance)
    program = _started(study, chance)
    below = [pid for pid, _ in workers(program.pid)]
    happened = program.poll() is None
    before = study.trials()
    program.kill()
    program.communicate()
    left = "" if eventually(lambda: not any(map(is_alive, below)), 10) else "workers outlive their parent"
    return outcome("kill -9: parent", study, before, happened, left)


def kill_compiler(folder: Path, cache: Path, chance: random.Random) -> Injected:
    """``kill -9`` of a compile worker; the study goes on."""
    return _kill_workers("kill -9: compile worker", "compile", folder, cache, chance)


def kill_checker(folder: Path, cache: Path, chance: random.Random) -> Injected:
    """``kill -9`` of a worker that checks in the interpreter; the study goes on."""
    return _kill_workers("kill -9: check worker", "interpret-", folder, cache, chance)


def _kill_workers(kind: str, name: str, folder: Path, cache: Path, chance: random.Random) -> Injected:
    study = _study(folder, cache, chance)
    program = study.start()
    happened = False
    if wait_until_stored(study, program, chance.randrange(TRIALS - 1)):
        eventually(lambda: any(log.startswith(name) for _, log in workers(program.pid)), 20)
        time.sleep(chance.uniform(0.0, 0.3))
        happened = kill_worker(program.pid, name, chance)
    _, err = program.communicate(timeout=120)
    said = "" if program.returncode == 0 else f"the study did not go on: {program.returncode} {err[-300:]}"
    return outcome(kind, study, study.trials(), happened, said)


def kill_zygote(folder: Path, cache: Path, chance: random.Random) -> Injected:
    """``kill -9`` of a process that starts workers: the run ends with an error, and the next one goes on."""
    study = _study(folder, cache, chance)
    program = _started(study, chance)
    before = study.trials()
    happened = kill_worker(program.pid, "zygote|interpreter", chance)
    _, err = program.communicate(timeout=120)
    said = one_line(err) if program.returncode == 2 else ""
    if program.returncode not in (0, 2):
        said = f"exit code {program.returncode}: {err[-300:]}"
    return outcome("kill -9: zygote", study, before, happened, said)


def interrupt_twice(folder: Path, cache: Path, chance: random.Random) -> Injected:
    """Ctrl-C, and ``kill -9`` while what it stopped is being stored."""
    study = _study(folder, cache, chance)
    program = _started(study, chance)
    happened = program.poll() is None
    before = study.trials()
    program.send_signal(signal.SIGINT)
    time.sleep(chance.uniform(0.0, 0.15))
    program.kill()
    program.communicate()
    return outcome("Ctrl-C, then kill -9", study, before, happened)


def another_schema(folder: Path, cache: Path, chance: random.Random) -> Injected:
    """Another version of the program changes the schema's revision while the study runs."""
    study = _study(folder, cache, chance)
    program = _started(study, chance)
    happened = program.poll() is None
    with sqlite3.connect(study.database, timeout=30) as other:
        (revision,) = other.execute("SELECT version_num FROM tuner_alembic_version").fetchone()
        other.execute("UPDATE tuner_alembic_version SET version_num = ?", (chance.choice(("0999", "0001")),))
    before = study.trials()
    _, err = program.communicate(timeout=120)
    said = one_line(err) if program.returncode == 2 else ""
    if happened and program.returncode != 2 and study.trials() != before:
        said = f"written to another schema (exit code {program.returncode})"
    with sqlite3.connect(study.database, timeout=30) as other:
        other.execute("UPDATE tuner_alembic_version SET version_num = ?", (revision,))
    other.close()
    return outcome("schema changed meanwhile", study, before, happened, said)


def delete_cache(folder: Path, cache: Path, chance: random.Random) -> Injected:
    """The cache folder is deleted while the study runs: it ends with a result or an error, and the next goes on."""
    own = folder / "cache"
    study = _study(folder, own, chance)
    program = _started(study, chance)
    happened = program.poll() is None
    before = study.trials()
    shutil.rmtree(own, ignore_errors=True)
    _, err = program.communicate(timeout=180)
    said = "" if program.returncode == 0 else one_line(err)
    return outcome("cache deleted meanwhile", study, before, happened, said)


@contextmanager
def small_disk(folder: Path, megabytes: float) -> Iterator[Path]:
    """A file system of its own. Raises ``PermissionError`` where none may be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={int(megabytes * 1024)}k,mode=0700"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
    if done.returncode != 0:
        raise PermissionError(done.stderr.decode())
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    """Changes a file system of ``small_disk``."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def may_mount(folder: Path) -> bool:
    """Whether ``small_disk`` works here: it needs a privileged user."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    try:
        with small_disk(folder, 1):
            return True
    except PermissionError:
        return False


def full_database_disk(folder: Path, cache: Path, chance: random.Random) -> Injected:
    """The disk of the database is full at some point; then there is room again."""
    with small_disk(folder / "disk", chance.uniform(0.3, 1.2)) as disk:
        study = _study(disk, cache, chance)
        program = study.start()
        filler = disk / "filler"
        wait_until_stored(study, program, chance.randint(0, TRIALS - 3))
        happened = program.poll() is None
        _fill(filler)
        before = study.trials()
        _, err = program.communicate(timeout=120)
        said = one_line(err) if program.returncode != 0 else ""
        filler.unlink()
        remount(disk, "size=100m")
        return outcome("disk full: database", study, before, happened, said)


def full_cache_disk(folder: Path, cache: Path, chance: random.Random) -> Injected:
    """The disk of the cache is full at some point; then there is room again."""
    with small_disk(folder / "disk", chance.uniform(0.1, 3.0)) as disk:
        study = _study(folder, disk / "cache", chance)
        program = study.start()
        wait_until_stored(study, program, chance.randint(0, TRIALS - 3))
        happened = program.poll() is None
        _fill(disk / "filler")
        _, err = program.communicate(timeout=180)
        before = study.trials()
        said = one_line(err) if program.returncode != 0 else ""
        (disk / "filler").unlink()
        remount(disk, "size=300m")
        return outcome("disk full: cache", study, before, happened, said)


def read_only_database(folder: Path, cache: Path, chance: random.Random) -> Injected:
    """The file system of the database goes read-only, as Linux does where a disk fails; then it is written again."""
    with small_disk(folder / "disk", 100) as disk:
        study = _study(disk, cache, chance)
        program = _started(study, chance)
        happened = program.poll() is None
        before = study.trials()
        # Open files keep a file system from being made read-only, so what is mounted here is.
        subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
        _, err = program.communicate(timeout=120)
        said = one_line(err) if program.returncode not in (0, 130) else ""
        refused = study.finish()
        if refused.returncode != 2:
            if study.trials() != before or refused.returncode != 0:
                said += f" on a read-only disk: {refused.returncode} {refused.stderr[-200:]}"
        else:
            said += one_line(refused.stderr)
        subprocess.run(["umount", "-l", str(disk)], check=True)
        return outcome("database read-only", study, before, happened, said)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


KINDS: dict[str, Injection] = {
    "parent": kill_parent,
    "compiler": kill_compiler,
    "checker": kill_checker,
    "zygote": kill_zygote,
    "interrupt": interrupt_twice,
    "schema": another_schema,
    "cache": delete_cache,
    "full-database": full_database_disk,
    "full-cache": full_cache_disk,
    "read-only": read_only_database,
}
MOUNTING = ("full-database", "full-cache", "read-only")
"""Those that need a file system of their own."""
