"""Exported tables of strangers: other paths, links, pipes and contents, under a provenance whose digest is right."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.trust.attempts import Attempt, command
from tests.trust.hostile import HOSTILE_NUMBERS, HOSTILE_PATHS, HOSTILE_TEXTS
from tuner.canonical import digest
from tuner.exports.provenance import sidecar_path

FORMATS = ("python", "triton", "fla", "flaggems")
_SINGLE = {"triton": "configs.py", "flaggems": "configs.yaml"}


def table_path(folder: Path, form: str) -> Path:
    """Where a table of a format is, or is to be, below ``folder``."""
    return folder / _SINGLE.get(form, f"{form}_table")


def sidecar_of(path: Path) -> Path:
    """The provenance of the table at ``path``."""
    single = path.suffix in (".py", ".yaml")
    return path.with_name(path.name + sidecar_path(True)) if single else path / sidecar_path(False)


def make_tables(database: Path, folder: Path) -> None:
    """One table of each format."""
    folder.mkdir(parents=True, exist_ok=True)
    for form in FORMATS:
        seed = ("--seed",) if form == "flaggems" else ()
        words = ("export", "--format", form, "--output", str(table_path(folder, form)), *seed, "--db", str(database))
        made = command(*words)
        assert made.code == 0, made


def rewritten(sidecar: Path, change: Any) -> None:
    """Changes what a provenance says and makes its digest right again, as anybody can."""
    data = json.loads(sidecar.read_text())
    data.pop("digest")
    data = change(data)
    try:
        data["digest"] = digest(data, 64)
        text = json.dumps(data)
    except (TypeError, ValueError):
        text = json.dumps(data)
    sidecar.write_text(text, encoding="utf-8", errors="replace")


def attack_table(base: Path, database: Path, folder: Path, chance: random.Random) -> list[Attempt]:
    """One case: copies of the tables of ``base`` in ``folder`` are changed, then checked and written over."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base, folder, symlinks=True)
    form = chance.choice(FORMATS)
    path = table_path(folder, form)
    what = _change(path, chance)
    seed = ("--seed",) if form == "flaggems" else ()
    db = ("--db", str(database))
    attempts = [
        command("export", "--check", "--output", str(path), *db),
        command("export", "--check", "--output", str(path), "--json", *db),
        command("export", "--format", form, "--output", str(path), *seed, *db),
        command("export", "--format", form, "--output", str(path), "--replace", *seed, *db),
    ]
    if form == "fla":
        before = dict(os.environ)
        try:
            places = [p for p in path.iterdir() if p.is_dir()] if path.is_dir() else []
            os.environ["FLA_CONFIG_DIR"] = str(places[0] if places else path)
            attempts.append(command("doctor", "--target", "fla"))
        finally:
            os.environ.clear()
            os.environ.update(before)
    return [replace(attempt, what=f"{attempt.what} <- {what}") for attempt in attempts]


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def _change(path: Path, chance: random.Random) -> str:
    changes = (_paths, _values, _content, _link, _folder_link, _pipe, _garbage)
    change = chance.choice(changes)
    return f"{change.__name__}: {change(path, chance)}"


def _paths(path: Path, chance: random.Random) -> str:
    """Names files outside, with the hashes that they have."""
    outside = path.parent.parent / "outside"
    names = [*HOSTILE_PATHS, str(outside), os.path.relpath(outside, path if path.is_dir() else path.parent)]
    chosen = chance.sample(names, 3)
    content = hashlib.sha256(outside.read_bytes()).hexdigest()
    rewritten(sidecar_of(path), lambda data: {**data, "files": {**data["files"], **dict.fromkeys(chosen, content)}})
    return repr(chosen)


def _values(path: Path, chance: random.Random) -> str:
    """Anything instead of a value somewhere in the provenance."""
    seen: list[str] = []

    def mutated(value: Any, at: str) -> Any:
        if isinstance(value, dict) and value and chance.random() < 0.9:
            key = chance.choice(sorted(value))
            return {**value, key: mutated(value[key], f"{at}.{key}")}
        if isinstance(value, list) and value and chance.random() < 0.9:
            place = chance.randrange(len(value))
            return [mutated(v, f"{at}[{i}]") if i == place else v for i, v in enumerate(value)]
        seen.append(at)
        return chance.choice((*HOSTILE_TEXTS, *HOSTILE_PATHS, *HOSTILE_NUMBERS, None, True, [], {}, "x" * 1_000_000))

    rewritten(sidecar_of(path), lambda data: mutated(data, ""))
    return seen[0]


def _contents(chance: random.Random) -> Iterator[str]:
    yield "(" * 100_000
    yield "-" * 100_000 + "1"
    yield "[" * 100_000 + "]" * 100_000
    yield "TABLES = " + "{'a': " * 90 + "1" + "}" * 90
    yield "KEYS = {}\nTABLES = {'d': {'k': {(1,): ({}, {'num_warps': 4})}}}\n"
    yield "KEYS = 1\nTABLES = [[[[]]]]\n"
    yield "x = " + "9" * 5000
    yield '{"kernel_name": "k", "autotune_entries": ' + "[" * 50_000
    yield '{"kernel_name": ' + "9" * 6000 + "}"
    yield "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(20)
    )
    yield "attention: !!python/object/apply:os.system [touch outside]\n"
    yield "import os\nos.system('touch outside')\n"
    yield "\x00" * 1000
    yield "1, " * 690_000
    yield "#" * 20_000_000
    yield chance.choice(HOSTILE_TEXTS).encode("utf-8", "replace").decode()


def _content(path: Path, chance: random.Random) -> str:
    """Another content under a provenance that agrees."""
    file = chance.choice([p for p in _files(path) if p != sidecar_of(path)])
    text = chance.choice(list(_contents(chance)))
    file.write_text(text, encoding="utf-8")
    name = str(file.relative_to(path)) if path.is_dir() else ""
    said = hashlib.sha256(text.encode()).hexdigest()
    rewritten(sidecar_of(path), lambda data: {**data, "files": {**data["files"], name: said}})
    return f"{name} = {text[:40]!r}"


def _link(path: Path, chance: random.Random) -> str:
    """A link instead of a file."""
    file = chance.choice(_files(path))
    target = chance.choice((path.parent.parent / "outside", Path("/dev/zero"), Path("/etc/passwd"), file, Path("/")))
    file.unlink()
    file.symlink_to(target)
    return f"{file.name} -> {target}"


def _folder_link(path: Path, chance: random.Random) -> str:
    """A link to another folder instead of one of the table's."""
    folders = [p for p in path.rglob("*") if p.is_dir()] if path.is_dir() else []
    if not folders:
        return "nothing"
    folder = chance.choice(sorted(folders))
    shutil.rmtree(folder)
    folder.symlink_to(path.parent.parent / "outside_folder")
    return folder.name


def _pipe(path: Path, chance: random.Random) -> str:
    """A pipe that nobody writes to instead of a file."""
    file = chance.choice(_files(path))
    file.unlink()
    os.mkfifo(file)
    return file.name


def _garbage(path: Path, chance: random.Random) -> str:
    """Something else altogether instead of a file."""
    file = chance.choice(_files(path))
    file.write_bytes(chance.choice((b"", chance.randbytes(1000), b"[" * 1_000_000, b'{"digest": ' + b"9" * 10_000)))
    return file.name
