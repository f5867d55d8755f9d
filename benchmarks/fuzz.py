"""Feeds hostile databases, tables, YAML files and expressions to the commands and calls that read them.

    python -m benchmarks.fuzz --cases 1000
    python -m benchmarks.fuzz --cases 200 --kind database --seed 7

Prints a line a kind: cases, attempts (commands or calls), how many were refused (exit code 2), what was found (a
traceback, a hang of more than 2 seconds, raw control characters, a file outside), the slowest attempt, and by how much
memory grew. Each kind runs in a process that may use 1 GiB more than it has at its start; what needs more is found as a
MemoryError.
Exits with 1 where something was found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.trust.attempts import Attempt, files_below
from tests.trust.database_attacks import attack_database, stranger
from tests.trust.table_attacks import attack_table, make_tables
from tests.trust.yaml_attacks import attack_expression, attack_problems, attack_space

MORE_BYTES = 2**30
MOST_SHOWN = 10

Case = Callable[[random.Random], list[Attempt]]


def database_case(folder: Path) -> Case:
    """Rows of other types, sizes and contents."""
    stranger(folder / "base.db")
    inside = folder / "in"
    inside.mkdir()
    return lambda chance: attack_database(folder / "base.db", inside, chance, commands=6)


def table_case(folder: Path) -> Case:
    """Tables with other provenance, paths, links and contents."""
    stranger(folder / "base.db")
    make_tables(folder / "base.db", folder / "tables")
    (folder / "outside").write_text("as it was")
    (folder / "outside_folder").mkdir()
    return lambda chance: attack_table(folder / "tables", folder / "base.db", folder / "in", chance)


def _in(folder: Path, attack: Callable[[Path, random.Random], Attempt]) -> Case:
    (folder / "in").mkdir()
    return lambda chance: [attack(folder / "in", chance)]


KINDS: dict[str, Callable[[Path], Case]] = {
    "database": database_case,
    "table": table_case,
    "space": lambda folder: _in(folder, attack_space),
    "problems": lambda folder: _in(folder, attack_problems),
    "expression": lambda folder: _in(folder, attack_expression),
}


def virtual_bytes() -> int:
    """The address space of this process (proc(5))."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def run_kind(kind: str, cases: int, seed: int) -> dict[str, object]:
    """Every case of one kind, in this process, with a limit on its memory."""
    warnings.simplefilter("ignore")  # a hostile row may make a library warn
    attempts = refused = 0
    slowest, found = 0.0, []
    with tempfile.TemporaryDirectory(prefix="tuner-fuzz-") as name:
        folder = Path(name)
        case = KINDS[kind](folder)
        case(random.Random(0))  # loads what is loaded once
        limit = virtual_bytes() + MORE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        start_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before = files_below(folder, but=(folder / "in",))
        for number in range(cases):
            for attempt in case(random.Random(f"{seed}/{kind}/{number}")):
                attempts += 1
                refused += attempt.code == 2
                slowest = max(slowest, attempt.seconds)
                found += [f"{kind} {number}: {fault[:200]}: {attempt.what[:200]}" for fault in attempt.faults]
        if files_below(folder, but=(folder / "in",)) != before:
            found.append(f"{kind}: a file outside was changed")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start_kib) // 1024
    return {"attempts": attempts, "refused": refused, "found": found, "slowest_s": slowest, "grown_mib": grown}


def in_processes(kinds: list[str], cases: int, seed: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Each kind in a process of its own."""
    for kind in kinds:
        words = [sys.executable, "-m", "benchmarks.fuzz", "--inside", kind, "--cases", str(cases), "--seed", str(seed)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            yield kind, {"attempts": 0, "refused": 0, "found": [f"{kind}: ended with {done.returncode}"],
                         "slowest_s": 0.0, "grown_mib": 0}  # fmt: skip
        else:
            yield kind, json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    """Runs what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200, help="cases of each kind")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only this kind; may be repeated")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--inside", choices=list(KINDS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(run_kind(given.inside, given.cases, given.seed)))
        return 0
    print(f"seed {given.seed}", flush=True)
    head = f"{'kind':12} {'cases':>7} {'attempts':>8} {'refused':>8} {'found':>6} {'slowest s':>9} {'memory MiB':>10}"
    print(head, flush=True)
    every: list[str] = []
    for kind, result in in_processes(given.kind or list(KINDS), given.cases, given.seed):
        found = [str(text) for text in result["found"]]  # type: ignore[attr-defined]
        print(
            f"{kind:12} {given.cases:7} {result['attempts']:8} {result['refused']:8} {len(found):6} "
            f"{result['slowest_s']:9.2f} {result['grown_mib']:10}",
            flush=True,
        )
        every += found
    for text in every[:MOST_SHOWN]:
        print(text)
    return 1 if every else 0


if __name__ == "__main__":
    sys.exit(main())
