"""Real studies without a GPU, in processes of their own, and what became of their database."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.programs import environment, eventually, run, start

SPACES = Path(__file__).parents[1] / "spaces_engine"
TRIALS = 8
# No config of the space can end like this, so a result that says so is false.
FALSE = ("compile_error", "crashed", "timed_out", "out_of_resources", "wrong")


def rows(database: Path, query: str) -> list[tuple[object, ...]]:
    """What ``query`` gives; nothing while there is no such table, or where the file cannot be read."""
    with contextlib.suppress(sqlite3.Error):
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()
    return []


@dataclass
class Study:
    """One study of ``TRIALS`` configs whose command is run again and again on one database."""

    folder: Path
    cache: Path
    cols: int = 100
    database: Path = field(init=False)

    def __post_init__(self) -> None:
        self.database = self.folder / "tuner.db"

    @property
    def words(self) -> list[str]:
        """The command."""
        shape = f"rows=64,cols={self.cols}"
        words = ["tune", "softmax", "--shape", shape, "--dtype", "fp32", "--no-gpu", "--workers", "2"]
        words += ["--space", str(SPACES / "many.yaml"), "--trials", str(TRIALS), "--json"]
        return ["-m", "tuner", *words, "--db", str(self.database)]

    def start(self) -> subprocess.Popen[str]:
        """Starts it."""
        return start(*self.words, env=environment(TUNER_CACHE=str(self.cache)), cwd=self.folder)

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Runs it to its end."""
        return run(*self.words, env=environment(TUNER_CACHE=str(self.cache)), cwd=self.folder, limit_s=120)

    def check(self) -> subprocess.CompletedProcess[str]:
        """``tuner db check``."""
        return run("-m", "tuner", "db", "check", "--db", str(self.database), env=environment(), cwd=self.folder)

    def trials(self) -> set[tuple[object, ...]]:
        """What is stored."""
        return set(rows(self.database, "SELECT id, config_key, outcome, value_us FROM tuner_trial"))

    def has(self, trials: int) -> bool:
        """Whether so many trials are stored."""
        return len(self.trials()) >= trials


@dataclass(frozen=True)
class Injected:
    """One fault. ``happened``: it was injected while the study ran. ``problems`` is empty where it was survived."""

    kind: str
    happened: bool
    lost: int
    problems: tuple[str, ...]


def outcome(kind: str, study: Study, before: set[tuple[object, ...]], happened: bool, *said: str) -> Injected:
    """Runs the study to its end and says what is wrong: ``said``, and what is found afterwards."""
    problems = [text for text in said if text]
    done = study.finish()
    if done.returncode != 0:
        problems.append(f"the next run ended with {done.returncode}: {done.stderr[-300:]}")
    after = study.trials()
    lost = len(before - after)
    if lost:
        problems.append(f"{lost} trials lost")
    keys = [key for _, key, _, _ in after]
    if len(keys) != TRIALS or len(set(keys)) != TRIALS:
        problems.append(f"{len(keys)} trials of {len(set(keys))} configs, not {TRIALS}")
    if false := [result for _, _, result, _ in after if result in FALSE]:
        problems.append(f"false results: {false}")
    if (states := rows(study.database, "SELECT state FROM tuner_study")) != [("finished",)]:
        problems.append(f"states {states}")
    if done.returncode == 0 and json.loads(done.stdout)["winner"] is None:
        problems.append("no winner")
    checked = study.check()
    if checked.returncode != 0:
        problems.append(f"db check: {checked.stdout[-300:]} {checked.stderr[-300:]}")
    return Injected(kind, happened, lost, tuple(problems))


def one_line(err: str) -> str:
    """What is wrong with the end of a run that could not go on: it must say why in one line, and no traceback."""
    errors = [line for line in err.splitlines() if line.startswith(("error: ", "internal error"))]
    if "Traceback" in err or len(errors) != 1 or errors[0].startswith("internal"):
        return f"not one line: {err[-400:]}"
    return ""


def workers(parent: int) -> Iterator[tuple[int, str]]:
    """Every living process below ``parent`` with the name of its log: ``compile-0``, ``interpret-1``, ``zygote``."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{entry}/stat").read_text()
                children.setdefault(int(stat[stat.rindex(")") + 2 :].split()[1]), []).append(int(entry))
    pending = [parent]
    while pending:
        for child in children.get(pending.pop(), []):
            pending.append(child)
            with contextlib.suppress(OSError):
                yield child, Path(os.readlink(f"/proc/{child}/fd/1")).stem


def kill_worker(parent: int, name: str, chance: random.Random) -> bool:
    """``kill -9`` of one process below ``parent`` whose log has such a name. False where none lives."""
    found = [pid for pid, log in workers(parent) if re.match(name, log)]
    if not found:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(chance.choice(sorted(found)), signal.SIGKILL)
        return True
    return False


def wait_until_stored(study: Study, program: subprocess.Popen[str], trials: int) -> bool:
    """Waits until so many trials are stored; False where the program ended before."""
    return eventually(lambda: study.has(trials) or program.poll() is not None, 60) and program.poll() is None
