"""vLLM's tables for its fused mixture of experts: one JSON file for the experts' sizes and the device, a config an M.

Read from vLLM 0.33.0: the file's name says E (experts), N (the width inside an expert) and the device; the folder in
``VLLM_TUNED_CONFIG_FOLDER`` goes before the package's own, and the first file that is there is taken whole. The keys
are numbers of tokens M, of which the nearest is taken. A key of any other kind breaks the loader.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tuner.config import Value
from tuner.doctor import Check, Status
from tuner.errors import ExpressionError, UsageError
from tuner.exports.device_names import model_name, moe_name
from tuner.exports.entry import Entry, LeftOut, Selection
from tuner.exports.formats import Table
from tuner.exports.losses import leave_one_out, one_a_place
from tuner.exports.provenance import SUFFIX
from tuner.expression import Expression
from tuner.naming import listed
from tuner.wording import counted

_FOLDER = "VLLM_TUNED_CONFIG_FOLDER"
_NAME = re.compile(r"E=(\d+),N=(\d+),device_name=([^,/\s]+)(,dtype=float32)?\.json")
_REQUIRED = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
_OPTIONAL = ("SPLIT_K", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
_DEFAULTS = {"E": "experts", "N": "intermediate", "M": "tokens"}
_HELP = "the size that vLLM calls {}, or an expression of sizes (default {})"


def _power_of_two(value: int) -> int:
    if value & (value - 1):
        raise ValueError("must be a power of two")
    return value


Block = Annotated[int, Field(ge=16), AfterValidator(_power_of_two)]


class ConfigModel(BaseModel):
    """One config, as vLLM's launch takes it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    BLOCK_SIZE_M: Block
    BLOCK_SIZE_N: Block
    BLOCK_SIZE_K: Block
    GROUP_SIZE_M: int = Field(ge=1)
    num_warps: Literal[1, 2, 4, 8, 16, 32]
    num_stages: int = Field(ge=1)
    SPLIT_K: int = Field(default=1, ge=1)
    waves_per_eu: int = Field(default=0, ge=0)
    matrix_instr_nonkdim: int = Field(default=0, ge=0)
    kpack: int = Field(default=1, ge=1)


_FILE = TypeAdapter(dict[Annotated[str, Field(pattern=r"^[1-9]\d*$")], ConfigModel])


@dataclass(frozen=True, eq=False)
class _Row:
    """A winner with its file and its key there."""

    entry: Entry
    file: str
    tokens: int

    @property
    def config(self) -> dict[str, Value]:
        values = self.entry.winner.config.values
        return {name: values[name] for name in (*_REQUIRED, *_OPTIONAL) if name in values}


class VllmMoe:
    """The format ``vllm_moe``."""

    name = "vllm_moe"
    summary = "vLLM's fused MoE tables: E=...,N=...,device_name=....json, a config for each number of tokens"
    consumer = "vLLM 0.33 (fused_moe)"
    single_file = False
    seed = True
    settings: Mapping[str, str] = {name: _HELP.format(name, default) for name, default in _DEFAULTS.items()}

    def table(self, selection: Selection, settings: Mapping[str, str], name: str) -> Table:
        """A folder of files. Of winners for one place in a file the measured one that loses least elsewhere."""
        found: list[_Row] = []
        left_out: list[LeftOut] = []
        for entry in selection.entries:
            row, why = _row(entry, {**_DEFAULTS, **settings})
            if row is not None:
                found.append(row)
            else:
                left_out.append(LeftOut(f"{entry.problem.label} on {entry.device.name}", why))
        if not found:
            raise UsageError(f"no winner has a place in vLLM's tables: {left_out[0].what}: {left_out[0].why}")
        kept, alike = _one_a_place(found)
        files = {}
        for file in sorted({row.file for row in kept}):
            rows = sorted((row for row in kept if row.file == file), key=lambda row: row.tokens)
            files[file] = json.dumps({str(row.tokens): row.config for row in rows}, indent=4) + "\n"
        place = {row.entry: row for row in kept}

        def nearest(held_out: Entry, others: Sequence[Entry]) -> Entry | None:
            wanted = place[held_out]
            return _nearest(wanted.tokens, [place[o] for o in others if place[o].file == wanted.file])

        return Table(
            files=files,
            used=tuple((row.entry, f"{row.file}#{row.tokens}") for row in kept),
            left_out=(*left_out, *alike),
            losses=(leave_one_out("vLLM, nearest M", [row.entry for row in kept], nearest),),
            notes=(
                f"set {_FOLDER}={name} before vLLM starts",
                "vLLM takes such a file whole, in place of the one in its package",
                "the loss is that of our kernel with these configs, not of vLLM's",
            ),
        )

    def validate(self, files: Mapping[str, str]) -> None:
        """Hold names, keys and configs to what vLLM's loader and launch need."""
        for path, text in files.items():
            if not _NAME.fullmatch(path):
                raise UsageError(
                    f"{path}: is no name that vLLM looks for; it is E=8,N=3584,device_name=NVIDIA_H200.json"
                )
            try:
                found = _FILE.validate_json(text)
            except ValidationError as error:
                first = error.errors()[0]
                key = ".".join(str(part) for part in first["loc"] if part != "[key]")
                raise UsageError(
                    f"{path}: {key}: {first['msg']}; vLLM would break on it, or launch what is wrong"
                ) from None
            if not found:
                raise UsageError(f"{path}: has no config; export it again")

    def examine(self) -> tuple[Check, ...]:
        """Whether vLLM would read a table here, and which name it looks for."""
        from tuner.nvml import device_names

        checks = [_installed()]
        wanted = [moe_name(name) for name in device_names()]
        if wanted:
            value = ", ".join(f"E=...,N=...,device_name={name}.json" for name in wanted)
            checks.append(Check("file name", Status.OK, value))
        else:
            remedy = "the name that vLLM looks for ends in the model of the GPU that it runs on"
            checks.append(Check("file name", Status.WARNING, "no NVIDIA GPU here", remedy))
        folder = os.environ.get(_FOLDER)
        if not folder:
            remedy = "set it to an exported folder before vLLM starts; without it the package's own tables are read"
            return (*checks, Check(_FOLDER, Status.WARNING, "not set", remedy))
        files = [path for path in sorted(Path(folder).glob("*.json")) if not path.name.endswith(SUFFIX)]
        if not files:
            remedy = "name the folder that `tuner export --format vllm_moe` has written"
            return (*checks, Check(_FOLDER, Status.MISSING, f"{folder} has no table", remedy))
        checks.append(Check(_FOLDER, Status.OK, f"{folder} ({len(files)} files)"))
        return (*checks, *(self._file_check(path, wanted) for path in files))

    def _file_check(self, path: Path, wanted: Sequence[str]) -> Check:
        try:
            text = path.read_text(encoding="utf-8")
            self.validate({path.name: text})
        except (OSError, UnicodeDecodeError, UsageError) as error:
            return Check(path.name, Status.WARNING, str(error), "export it again, unless it is no MoE table")
        entries, name = len(json.loads(text)), _NAME.fullmatch(path.name)
        if wanted and name is not None and name[3] not in wanted:
            return Check(path.name, Status.WARNING, f"of {name[3]}", f"vLLM looks for {listed(wanted)} here")
        return Check(path.name, Status.OK, counted(entries, "config"))


def _row(entry: Entry, names: Mapping[str, str]) -> tuple[_Row | None, str]:
    """Where an entry goes, or why it goes nowhere."""
    config, template = entry.winner.config, entry.winner.config.template
    missing = [name for name in _REQUIRED if name not in config.values]
    if missing:
        return None, f"template {template} has no {listed(missing)}"
    strange = [name for name in config.chosen if name not in (*_REQUIRED, *_OPTIONAL)]
    if strange:
        return None, f"template {template} also chooses {listed(strange)}, which vLLM's kernel does not take"
    if entry.device.backend != "cuda":
        return None, "vLLM names AMD's GPUs by a table of its own"
    numbers = {}
    for name, text in names.items():
        try:
            numbers[name] = Expression.parse(text).evaluate(entry.problem.sizes)
        except ExpressionError as error:
            return None, f"{name}: {error}; say which size it is, as in --set {name}=experts"
        if type(numbers[name]) is not int or int(str(numbers[name])) < 1:
            return None, f"{name}: {text} gives {numbers[name]!r}, which is no whole number of at least 1"
    dtype = ",dtype=float32" if entry.problem.dtype == "fp32" else ""
    file = f"E={numbers['E']},N={numbers['N']},device_name={moe_name(model_name(entry.device))}{dtype}.json"
    return _Row(entry, file, int(str(numbers["M"]))), ""


def _one_a_place(found: Sequence[_Row]) -> tuple[list[_Row], list[LeftOut]]:
    """A file knows nothing of the other sizes, nor of bf16 and fp16."""
    return one_a_place(
        found,
        lambda row: (row.file, row.tokens),
        lambda kept: (
            f"has the place of {kept.entry.problem.label} ({kept.file}, M={kept.tokens}), whose config is used"
        ),
    )


def _nearest(tokens: int, rows: Sequence[_Row]) -> Entry | None:
    """vLLM's rule: the least difference, of two alike the first in the file."""
    found = min(sorted(rows, key=lambda row: row.tokens), key=lambda row: abs(row.tokens - tokens), default=None)
    return None if found is None else found.entry


def _installed() -> Check:
    try:
        version: Any = metadata.version("vllm")
    except metadata.PackageNotFoundError:
        if importlib.util.find_spec("vllm") is None:
            return Check("vllm", Status.MISSING, "not installed", "pip install vllm")
        version = "unknown version"
    status = Status.OK if version.startswith("0.33.") else Status.WARNING
    remedy = "" if status is Status.OK else "its loader was read in 0.33.0; look whether it still agrees"
    return Check("vllm", status, version, remedy)
