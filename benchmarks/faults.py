"""Injects faults into real studies and databases at random moments, many times, and counts what was survived.

    python -m benchmarks.faults --repeat 20
    python -m benchmarks.faults --repeat 5 --kind parent --kind power --seed 7

Prints a line a kind: how often it was injected while the study ran, how often it was survived (the next run goes on, no
stored trial is lost, no result is false, ``tuner db check`` finds nothing), and how many trials were lost. Kinds that
need a file system of their own are left out, with a note, where none may be mounted. Exits with 1 where one failed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.files import base_database, clock_backwards, damaged_database, damaged_log, power_cuts
from tests.faults.injections import KINDS, MOUNTING, may_mount
from tests.faults.studies import Injected

CUTS = 10
"""Power cuts of one writer: they are quick, so there are more of them."""


def study_faults(kind: str, repeat: int, seed: int, folder: Path, cache: Path) -> Iterator[Injected]:
    """``repeat`` faults of one kind of ``KINDS``."""
    for number in range(repeat):
        place = folder / f"{kind}-{number}"
        try:
            yield KINDS[kind](place, cache, random.Random(f"{seed}/{kind}/{number}"))
        except Exception:  # what fails here is a finding as well
            yield Injected(kind, True, 0, (traceback.format_exc(limit=3),))


def power(repeat: int, seed: int, folder: Path) -> Iterator[Injected]:
    """Power cuts."""
    for number in range(repeat):
        yield from power_cuts(folder / f"power-{number}", random.Random(f"{seed}/power/{number}"), CUTS)


def damaged(repeat: int, seed: int, folder: Path) -> Iterator[Injected]:
    """Damaged database files."""
    base_database(folder / "base.db")
    for number in range(CUTS * repeat):
        chance = random.Random(f"{seed}/damaged/{number}")
        yield damaged_database(folder / "base.db", folder / f"damaged-{number}", chance)


def logs(repeat: int, seed: int, folder: Path) -> Iterator[Injected]:
    """Damaged write-ahead logs."""
    for number in range(repeat):
        yield damaged_log(folder / f"log-{number}", random.Random(f"{seed}/log/{number}"))


def clocks(repeat: int, seed: int, folder: Path) -> Iterator[Injected]:
    """Clocks that step."""
    for number in range(repeat):
        yield clock_backwards(folder / f"clock-{number}", random.Random(f"{seed}/clock/{number}"), setattr)


FILES: dict[str, Callable[[int, int, Path], Iterator[Injected]]] = {
    "power": power,
    "damaged": damaged,
    "log": logs,
    "clock": clocks,
}


def main() -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--kind", action="append", choices=[*KINDS, *FILES], help="only this kind; may be repeated")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    given = parser.parse_args()
    chosen = given.kind or [*KINDS, *FILES]
    print(f"seed {given.seed}", flush=True)
    print(f"{'kind':32} {'injected':>8} {'survived':>8} {'trials lost':>11}", flush=True)
    failed = []
    with tempfile.TemporaryDirectory(prefix="tuner-faults-") as name:
        folder, cache = Path(name), Path(name) / "kernels"
        mounts = may_mount(folder / "mount")
        for kind in chosen:
            if kind in MOUNTING and not mounts:
                print(f"{kind:32} not run: no file system may be mounted here", flush=True)
                continue
            place = folder / kind
            place.mkdir()
            if kind in KINDS:
                done = list(study_faults(kind, given.repeat, given.seed, place, cache))
            else:
                done = list(FILES[kind](given.repeat, given.seed, place))
            injected = [result for result in done if result.happened]
            survived = sum(not result.problems for result in injected)
            lost = sum(result.lost for result in done)
            print(f"{done[0].kind:32} {len(injected):8} {survived:8} {lost:11}", flush=True)
            failed += [f"{result.kind}: {problem}" for result in done for problem in result.problems]
    for text in failed:
        print(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
