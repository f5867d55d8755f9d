"""Databases of strangers: rows of other types, sizes and contents than any that this program writes."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.exports.stored_winners import ESTIMATED, attention, softmax, store_winner
from tests.trust.attempts import Attempt, command
from tests.trust.hostile import HOSTILE_NUMBERS, HOSTILE_PATHS, HOSTILE_TEXTS

SHAPE = ("softmax", "--shape", "rows=64,cols=1024", "--dtype", "fp16")


def stranger(path: Path) -> None:
    """A small database of everything that commands read."""
    configs = [f"template=whole_row,num_warps={warps}" for warps in (1, 2, 4)]
    store_winner(path, softmax(64, 1024), *configs)
    store_winner(path, softmax(64, 2048), *configs[:2], stack=ESTIMATED)
    store_winner(path, attention(128), "template=pointer,BLOCK_M=128,BLOCK_N=32,num_warps=4")


def reading_commands(database: Path, output: Path) -> Iterator[tuple[str, ...]]:
    """Every command that reads a database, but those that start processes."""
    db = ("--db", str(database))
    yield ("studies", *db)
    yield ("studies", "--json", *db)
    yield ("show", "1", *db)
    yield ("show", "1", "--json", *db)
    yield ("best", *SHAPE, *db)
    yield ("best", *SHAPE, "--json", *db)
    yield ("query", "trials", "--outcome", "all", *db)
    yield ("query", "winners", "--json", "--estimated", *db)
    yield ("query", "measurements", "--format", "csv", *db)
    yield ("query", "trials", "--group-by", "template,outcome", *db)
    yield ("regressions", *db)
    yield ("regressions", "--estimated", "--before", "until=2026-01-01", "--json", *db)
    yield ("render", *SHAPE, "--best", "--estimated", *db)
    yield ("render", *SHAPE, "--best", "--estimated", "-o", str(output / "kernel.py"), *db)
    for form in ("python", "triton", "fla", "flex", "flaggems"):
        target = output / (form if form != "triton" else "triton.py")
        seed = ("--seed",) if form in ("flex", "flaggems") else ()
        yield ("export", "--format", form, "--output", str(target), "--replace", *seed, *db)
    yield ("db", "check", *db)
    yield ("db", "check", "--json", *db)


class Attacks:
    """Changes random places of a database to hostile values."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def change(self, path: Path, changes: int = 1) -> str:
        """Changes some values of the file; says which."""
        said = []
        with sqlite3.connect(path) as other:
            other.execute("PRAGMA foreign_keys = OFF")
            tables = [
                name
                for (name,) in other.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                if name.startswith("tuner_") and other.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            ]
            for _ in range(changes):
                table = self.chance.choice(sorted(tables))
                columns = [row[1] for row in other.execute(f"PRAGMA table_info({table})")]
                column = self.chance.choice(columns)
                rowids = [row[0] for row in other.execute(f"SELECT rowid FROM {table}")]
                rowid = self.chance.choice(rowids)
                before = other.execute(f'SELECT "{column}" FROM {table} WHERE rowid = ?', (rowid,)).fetchone()[0]
                value = self._instead_of(before)
                try:
                    other.execute(f'UPDATE {table} SET "{column}" = ? WHERE rowid = ?', (value, rowid))
                except (sqlite3.IntegrityError, OverflowError):
                    continue
                said.append(f"{table}.{column}[{rowid}] = {str(value)[:60]!r}")
        other.close()
        return "; ".join(said)

    def _instead_of(self, before: object) -> Any:
        if isinstance(before, str) and before[:1] in "{[" and self.chance.random() < 0.7:
            try:
                return json.dumps(self._mutated(json.loads(before)))
            except (ValueError, RecursionError):
                pass
        return self._scalar()

    def _scalar(self) -> Any:
        pick = self.chance.randrange(9)
        if pick == 0:
            number = self.chance.choice(HOSTILE_NUMBERS)
            return number if isinstance(number, float) or abs(number) < 2**63 else str(number)
        if pick == 1:
            return self.chance.choice(HOSTILE_PATHS)
        if pick == 2:
            return self.chance.randbytes(self.chance.randint(0, 64))
        if pick == 3:
            return self.chance.choice("xé\x1b") * self.chance.choice((10_000, 1_000_000))
        if pick == 4:
            return self.chance.choice(("[", '{"a":', "[[1],")) * 50_000
        if pick == 5:
            return self.chance.choice(("NaN", "Infinity", "[]", "{}", "null", "true", "0", '""', "9" * 6000, "[null]"))
        if pick == 6:
            return self.chance.choice(("9999-12-31 23:59:59.999999", "0001-01-01 00:00:00.000000", "2026-13-45", ""))
        return self._text()

    def _text(self) -> str:
        return self.chance.choice(HOSTILE_TEXTS).encode("utf-8", "replace").decode()

    def _mutated(self, value: Any) -> Any:
        """``value`` with one random place inside changed."""
        if isinstance(value, dict) and value and self.chance.random() < 0.85:
            key = self.chance.choice(sorted(value))
            if self.chance.random() < 0.15:
                return {**{k: v for k, v in value.items() if k != key}, self._text(): value[key]}
            return {**value, key: self._mutated(value[key])}
        if isinstance(value, list) and value and self.chance.random() < 0.85:
            place = self.chance.randrange(len(value))
            return [self._mutated(v) if i == place else v for i, v in enumerate(value)]
        return self.chance.choice(
            (
                self.chance.choice(HOSTILE_NUMBERS),
                self.chance.choice(HOSTILE_TEXTS),
                self.chance.choice(HOSTILE_PATHS),
                None,
                True,
                [],
                {},
                [[]] * 3,
                {"\x1b[31m": "\x1b[0m"},
                "x" * 100_000,
                list(range(10_000)),
            )
        )


def attack_database(base: Path, folder: Path, chance: random.Random, commands: int | None = None) -> list[Attempt]:
    """One case: a copy of ``base`` in ``folder`` is changed, then read by every command (or some of them)."""
    database = folder / "stranger.db"
    database.write_bytes(base.read_bytes())
    for name in ("stranger.db-wal", "stranger.db-shm"):
        (folder / name).unlink(missing_ok=True)
    what = Attacks(chance).change(database, chance.choice((1, 1, 2, 5)))
    every = list(reading_commands(database, folder / "out"))
    (folder / "out").mkdir(exist_ok=True)
    chosen = every if commands is None else chance.sample(every, commands)
    attempts = [command(*words) for words in chosen]
    return [replace(attempt, what=f"{attempt.what} <- {what}") for attempt in attempts]
