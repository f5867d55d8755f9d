"""Writes a database with results at the program's own schema revision, as SQL: what a later program must upgrade.

    python tests/store/make_revision_dump.py tests/store/revisions

Run it before a migration is added; the file is named by the revision, and is never changed afterwards.
"""

from __future__ import annotations

import socket
import sqlite3
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from store_samples import ESTIMATED_STACK, OTHER_VARIANT, VARIANT, failed, measurement, spec, timed

from tuner.store.migrating import HEAD
from tuner.store.records import WinnerRecord
from tuner.store.store import Store
from tuner.trial import Outcome


def fill(path: Path) -> None:
    """A finished study with a winner, one of estimates, one that is being run; trials of every kind."""
    with Store.open(str(path)) as store:
        done = store.start_study(spec())
        best = store.record_trial(done.id, timed(1), VARIANT)
        store.record_trial(done.id, timed(2, 12.5, variant=OTHER_VARIANT), OTHER_VARIANT)
        store.record_trial(done.id, failed(3, Outcome.WRONG, "é: off by one"), VARIANT)
        store.record_trial(done.id, failed(4, Outcome.OUT_OF_RESOURCES, "too much shared memory"), VARIANT)
        store.record_measurements(best, [measurement(9.0, "final")])
        finalists = ({"key": "k", "median_us": 9.1},)
        winner = WinnerRecord(
            best, "winner", "2 % faster", 9.1, 9.0, 9.3, False, 0.02, (0.01, 0.03), ("k",), "p", 12.0, 1.3, finalists
        )
        store.record_winner(done.id, winner)
        store.finish_study(done.id, "finished", 12.0, 6.0)
        guess = store.start_study(spec(stack=ESTIMATED_STACK))
        guessed = store.record_trial(guess.id, timed(1, 7.0), VARIANT)
        store.record_winner(guess.id, WinnerRecord(guessed, "tie", "by estimate", 7.0, 7.0, 7.0, True))
        store.finish_study(guess.id, "interrupted", 3.0, 0.0)
        running = store.start_study(spec(space_digest="another"))
        store.reuse_trial(running.id, best)
        store.heartbeat(running.id, 2.5, 1.5)


def main(folder: Path) -> None:
    """Writes the file. It does not say on which machine it was made."""
    socket.gethostname = lambda: "a-host"
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "tuner.db"
        fill(path)
        with sqlite3.connect(path) as database:
            lines = list(database.iterdump())
        database.close()
    folder.mkdir(exist_ok=True)
    (folder / f"{HEAD}.sql").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
