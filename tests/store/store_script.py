"""Run by the tests in another process: ``store_script.py WHAT DATABASE ...``."""

from __future__ import annotations

import random
import sys
import time

from store_samples import VARIANT, config, spec, timed

import tuner
from tuner.search import make_proposer
from tuner.space import load_space
from tuner.store.records import ClaimState
from tuner.store.store import Store
from tuner.targets import target
from tuner.trial import Outcome


def write(database: str, first: int, count: int, pause_s: float) -> None:
    """Opens a database that may be new, and writes trials: each block is said after its commit."""
    with Store.open(database) as store:
        study = store.start_study(spec(space_digest=f"worker-{first}"))
        for block in range(first, first + count):
            store.record_trial(study.id, timed(block), VARIANT)
            say(str(block))
            time.sleep(pause_s)
        store.finish_study(study.id, "finished", 1.0, 0.5)


def share(database: str, study_id: int, first: int, count: int) -> None:
    """Writes trials of its own and some that others write as well, to one study."""
    with Store.open(database) as store:
        for block in [*range(first, first + count), *range(5)]:
            store.record_trial(study_id, timed(block), VARIANT)


def work(database: str, count: int, measuring_s: float, order: int) -> None:
    """One of several that share the usual study: claims configs until all have results, and says what it does."""
    with Store.open(database) as store:
        study = store.start_study(spec())
        left = list(range(count))
        if order:
            random.Random(order).shuffle(left)
        while left:
            block = left.pop(0)
            state = store.claim(study.id, config(block), VARIANT.hash, "").state
            if state is ClaimState.CLAIMED:
                say(f"claimed {block}")
                time.sleep(measuring_s)
                store.record_trial(study.id, timed(block), VARIANT)
                say(f"measured {block}")
            elif state is ClaimState.TAKEN:
                say(f"taken {block}")
                left.append(block)
                time.sleep(0.005)
        store.finish_study(study.id, "finished", 1.0, 0.5)


def search(database: str, count: int) -> None:
    """One of several that propose configs from, and log them to, one Optuna study."""
    problem = tuner.make_problem("softmax", {"rows": 64, "cols": 1024}, "bf16")
    proposer = make_proposer(
        load_space("softmax").bind(problem, target("h200")), storage=database, study_name="shared", known={}
    )
    for number in range(count):
        proposal = proposer.ask()
        assert proposal is not None
        proposer.tell(proposal, Outcome.TIMED, 10.0 + number)
    proposer.close()
    say(str(count))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    what, database, *rest = sys.argv[1:]
    if what == "write":
        write(database, int(rest[0]), int(rest[1]), float(rest[2]))
    elif what == "share":
        share(database, int(rest[0]), int(rest[1]), int(rest[2]))
    elif what == "search":
        search(database, int(rest[0]))
    else:
        work(database, int(rest[0]), float(rest[1]), int(rest[2]))
