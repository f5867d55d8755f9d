"""Run by the tests in another process: ``store_script.py WHAT DATABASE ...``."""

from __future__ import annotations

import sys
import time

from store_samples import VARIANT, spec, timed

from tuner.store.store import Store


def write(database: str, first: int, count: int, pause_s: float) -> None:
    """Opens a database that may be new, and writes trials: each block is said after its commit."""
    with Store.open(database) as store:
        study = store.start_study(spec(space_digest=f"worker-{first}"))
        for block in range(first, first + count):
            store.record_trial(study.id, timed(block), VARIANT)
            sys.stdout.write(f"{block}\n")
            sys.stdout.flush()
            time.sleep(pause_s)
        store.finish_study(study.id, "finished", 1.0, 0.5)


def share(database: str, study_id: int, first: int, count: int) -> None:
    """Writes trials of its own and some that others write as well, to one study."""
    with Store.open(database) as store:
        for block in [*range(first, first + count), *range(5)]:
            store.record_trial(study_id, timed(block), VARIANT)


def hold(database: str) -> None:
    """Starts the usual study and keeps it."""
    with Store.open(database) as store:
        store.start_study(spec())
        sys.stdout.write("started\n")
        sys.stdout.flush()
        time.sleep(120)


if __name__ == "__main__":
    what, database, *rest = sys.argv[1:]
    if what == "write":
        write(database, int(rest[0]), int(rest[1]), float(rest[2]))
    elif what == "share":
        share(database, int(rest[0]), int(rest[1]), int(rest[2]))
    else:
        hold(database)
