"""fla-core's config cache: ``{kernel}.json`` files that its autotuner reads for any Triton kernel.

Read from fla-core 0.5.2 and 0.6.0: one file a kernel, entries under the MD5 of the autotune key; ``FLA_CACHE_MODE``
decides between exact keys (``strict``), then any numbers (``fuzzy``), then ``default_config`` (``full``).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tuner.doctor import Check, Status
from tuner.errors import UsageError
from tuner.exports.autotune_key import KEY_HELP, Key, Tuned, tuned
from tuner.exports.device_names import alphanumeric
from tuner.exports.entry import Entry, Selection
from tuner.exports.formats import Table
from tuner.exports.losses import leave_one_out, loss_elsewhere
from tuner.exports.own_files import MOST_PARSED_BYTES, read
from tuner.exports.provenance import SUFFIX
from tuner.wording import counted

MODES = ("disabled", "strict", "fuzzy", "full", "default", "always")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ConfigModel(_Strict):
    """One config. Without ``num_ctas`` a launch dies of a KeyError on Triton 3.5.1 and newer."""

    kwargs: dict[str, bool | int | float | str]
    num_warps: Literal[1, 2, 4, 8, 16, 32]
    num_stages: int = Field(ge=1)
    num_ctas: int = Field(ge=1)
    maxnreg: int | None = None


class EntryModel(_Strict):
    """One tuned key."""

    autotune_key: list[bool | int | float | str]
    config: ConfigModel
    best_timing: float = Field(gt=0)


class FileModel(_Strict):
    """One kernel's file."""

    kernel_name: str = Field(pattern=r"^[A-Za-z_]\w*$")
    triton_version: str
    autotune_entries: dict[str, EntryModel] = Field(min_length=1)
    default_config: ConfigModel


class FlaCache:
    """The format ``fla``."""

    name = "fla"
    summary = "fla-core's config cache: {GPU}/{kernel}.json, for any Triton kernel under its autotuner"
    consumer = "fla-core 0.5.2 to 0.6.0"
    single_file = False
    seed = False
    settings: Mapping[str, str] = {"key": KEY_HELP}

    def table(self, selection: Selection, settings: Mapping[str, str], name: str) -> Table:
        """A folder for each GPU, in it a file for each kernel."""
        found, left_out = tuned(selection.entries, settings.get("key"), any_numbers=True)
        if not found:
            raise UsageError(f"no winner fits a kernel under an autotuner: {left_out[0].what}: {left_out[0].why}")
        by_file: dict[str, list[Tuned]] = {}
        for item in found:
            by_file.setdefault(f"{alphanumeric(item.entry.device)}/{item.kernel}.json", []).append(item)
        files, used = {}, []
        for path, items in sorted(by_file.items()):
            ordered = _most_general_first(items)
            files[path] = _file(ordered)
            used += [(item.entry, f"{path}#{_hash(item.key)}") for item in ordered]
        folders = sorted({path.partition("/")[0] for path in files})
        return Table(
            files=files,
            used=tuple(used),
            left_out=tuple(left_out),
            losses=(leave_one_out("fla in fuzzy mode", [item.entry for item in found], _fuzzy),),
            notes=(
                f"set FLA_CONFIG_DIR={name}/{folders[0]} and FLA_CACHE_MODE=strict (or fuzzy) before fla is imported",
                "what follows from the shape (such as a block of a whole row) stays the caller's to pass",
            ),
        )

    def validate(self, files: Mapping[str, str]) -> None:
        """Hold every file to the form that the loader and the launch after it need."""
        for path, text in files.items():
            try:
                model = FileModel.model_validate_json(text)
            except ValidationError as error:
                first = error.errors()[0]
                key = ".".join(str(part) for part in first["loc"])
                raise UsageError(f"{path}: {key}: {first['msg']}; fla-core would not load it") from None
            if Path(path).stem != model.kernel_name:
                raise UsageError(f"{path}: kernel_name: is {model.kernel_name!r}; fla-core looks by the file's name")
            for key, entry in model.autotune_entries.items():
                if key != _hash(tuple(entry.autotune_key)):
                    raise UsageError(
                        f"{path}: autotune_entries.{key}: is not the hash of its key; strict mode misses it"
                    )

    def examine(self) -> tuple[Check, ...]:
        """Whether fla-core would read a table here, and which."""
        checks = [_installed()]
        mode = os.environ.get("FLA_CACHE_MODE", "disabled")
        if mode not in MODES:
            checks.append(Check("FLA_CACHE_MODE", Status.MISSING, mode, f"fla refuses it; use {', '.join(MODES[1:])}"))
        elif mode == "disabled":
            remedy = "tables are ignored; set FLA_CACHE_MODE=strict (or fuzzy) before fla is imported"
            checks.append(Check("FLA_CACHE_MODE", Status.WARNING, mode, remedy))
        else:
            checks.append(Check("FLA_CACHE_MODE", Status.OK, mode))
        folder = os.environ.get("FLA_CONFIG_DIR")
        if not folder:
            remedy = "set it to the GPU's folder of an exported table; without it the package's own folder is read"
            return (*checks, Check("FLA_CONFIG_DIR", Status.WARNING, "not set", remedy))
        files = [path for path in sorted(Path(folder).glob("*.json")) if not path.name.endswith(SUFFIX)]
        if not files:
            remedy = "name the folder that holds {kernel}.json, which is one of the folders that the export made"
            return (*checks, Check("FLA_CONFIG_DIR", Status.MISSING, f"{folder} has no table", remedy))
        checks.append(Check("FLA_CONFIG_DIR", Status.OK, f"{folder} ({len(files)} files)"))
        return (*checks, *(self._file_check(path) for path in files))

    def _file_check(self, path: Path) -> Check:
        try:
            text = (read(path, MOST_PARSED_BYTES) or b"").decode()
            self.validate({path.name: text})
        except UsageError as error:
            return Check(path.name, Status.WARNING, str(error), "export it again, unless you wrote it yourself")
        except (RecursionError, ValueError) as error:  # no text, or numbers beyond all measure
            return Check(path.name, Status.MISSING, str(error), "export it again")
        model = FileModel.model_validate_json(text)
        from tuner.toolchain import triton_version

        entries = counted(len(model.autotune_entries), "entry", "entries")
        made_for = model.triton_version
        if made_for != triton_version():
            remedy = f"fla loads it all the same; tune again with Triton {triton_version()}"
            return Check(path.name, Status.WARNING, f"{entries}, of Triton {made_for}", remedy)
        return Check(path.name, Status.OK, entries)


def _file(items: Sequence[Tuned]) -> str:
    entries = {
        _hash(item.key): {
            "autotune_key": list(item.key),
            "best_timing": item.entry.us / 1e3,
            "config": _config(item),
        }
        for item in items
    }
    data: dict[str, Any] = {
        "kernel_name": items[0].kernel,
        "triton_version": items[0].entry.winner.stack.triton,
        "default_config": _config(items[0]),
        "autotune_entries": entries,
    }
    # Not sorted: fuzzy mode takes the first entry that fits.
    return json.dumps(data, indent=2) + "\n"


def _config(item: Tuned) -> dict[str, Any]:
    options = item.options
    return {
        "kwargs": dict(item.kwargs),
        "num_warps": options.get("num_warps", 4),
        "num_stages": options.get("num_stages", 3),
        "num_ctas": options.get("num_ctas", 1),
        "maxnreg": options.get("maxnreg"),
    }


def _hash(key: Key) -> str:
    """fla's name of a key: MD5 of its compact JSON."""
    return hashlib.md5(json.dumps(list(key), separators=(",", ":"), sort_keys=True).encode()).hexdigest()


def _most_general_first(items: Sequence[Tuned]) -> list[Tuned]:
    """The entry with the least loss at the others first: for new numbers fuzzy mode takes it, full mode the default."""
    entries = [item.entry for item in items]
    return sorted(items, key=lambda item: loss_elsewhere(item.entry, entries))


def _fuzzy(held_out: Entry, others: Sequence[Entry]) -> Entry | None:
    return min(others, key=lambda entry: loss_elsewhere(entry, others), default=None)


def _installed() -> Check:
    try:
        version = metadata.version("fla-core")
    except metadata.PackageNotFoundError:
        if importlib.util.find_spec("fla") is None:
            return Check("fla-core", Status.MISSING, "not installed", "pip install fla-core")
        version = "unknown version"
    status = Status.OK if version.startswith(("0.5.", "0.6.")) else Status.WARNING
    remedy = "" if status is Status.OK else "its loader was read in 0.5.2 and 0.6.0; look whether it still agrees"
    return Check("fla-core", status, version, remedy)
