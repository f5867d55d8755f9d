"""FlagGems' ``tune_configs.yaml``: a short list of candidates for its attention kernels, which it times itself.

Read from flag-gems 5.0.2. The list is for the op, not for a shape; no variable points to another file, so the fragment
goes into the installed package or upstream. Its softmax entries feed backward
kernels, so softmax winners have no place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tuner.doctor import Check, Status
from tuner.errors import SpaceError, UsageError
from tuner.exports.entry import Entry, LeftOut, Selection
from tuner.exports.formats import Table
from tuner.exports.losses import leave_one_out
from tuner.exports.seeds import Tiles, attention_tiles
from tuner.located_yaml import parse_yaml

# `keep()` of ops/flash_kernel.py: BLOCK_M, BLOCK_N, num_warps. Every other candidate is dropped when it is imported.
KEPT = ((128, 32, 4), (128, 128, 8))


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class MetaModel(_Strict):
    """Compile-time arguments of its attention forward."""

    BLOCK_M: int
    BLOCK_N: int
    PRE_LOAD_V: bool


class CandidateModel(_Strict):
    """One candidate. Other fields are dropped by the loader without a word."""

    META: MetaModel
    num_warps: int
    num_stages: int = Field(ge=1, le=8)


_FILE = TypeAdapter(dict[str, Annotated[list[CandidateModel], Field(min_length=1)]])


class FlagGems:
    """The format ``flaggems``."""

    name = "flaggems"
    summary = "a fragment of FlagGems' tune_configs.yaml: candidates for its attention forward"
    consumer = "flag-gems 5.0.2"
    single_file = True
    seed = True
    settings: Mapping[str, str] = {}

    def table(self, selection: Selection, settings: Mapping[str, str], name: str) -> Table:
        """The distinct tiles of the winners that FlagGems' own filter lets through."""
        if len({device.key for device in selection.devices}) > 1:
            names = ", ".join(sorted({device.name for device in selection.devices}))
            raise UsageError(f"flaggems: one file is for one device, but there are winners of {names}; add --device")
        seeds = attention_tiles(selection.entries)
        found, left_out = seeds.found, list(seeds.left_out)
        kept = [(entry, tiles) for entry, tiles in found if _kept(tiles)]
        for entry, tiles in found:
            if not _kept(tiles):
                what = f"{entry.problem.label} on {entry.device.name}"
                shown = f"BLOCK_M={tiles.block_m}, BLOCK_N={tiles.block_n}, num_warps={tiles.num_warps}"
                left_out.append(LeftOut(what, f"FlagGems' keep() drops {shown}"))
        if not kept:
            raise UsageError(f"no winner has a place in FlagGems: {left_out[0].what}: {left_out[0].why}")
        candidates = [
            {
                "META": {"BLOCK_M": tiles.block_m, "BLOCK_N": tiles.block_n, "PRE_LOAD_V": False},
                "num_warps": tiles.num_warps,
                "num_stages": tiles.num_stages,
            }
            for tiles in sorted({tiles for _, tiles in kept})
        ]
        return Table(
            files={"": yaml.safe_dump({"attention": candidates}, sort_keys=False)},
            used=tuple((entry, "attention") for entry, _ in kept),
            left_out=tuple(left_out),
            losses=(leave_one_out("flaggems, best of the list", [entry for entry, _ in kept], _best_of_list),),
            notes=(
                *seeds.notes,
                "put the entry `attention` into runtime/backend/_<vendor>/tune_configs.yaml (or its folder for the "
                "architecture) of the installed flag_gems; no variable names another file",
                "the loss is that of our kernel with these tiles, not of FlagGems'",
            ),
        )

    def validate(self, files: Mapping[str, str]) -> None:
        """Known fields only, and candidates that pass FlagGems' own filter: with none its flash kernel cannot run."""
        for path, text in files.items():
            try:
                model = _FILE.validate_python(parse_yaml(text, Path(path or "tune_configs.yaml")).data)
            except (ValidationError, SpaceError) as error:
                raise UsageError(f"{path}: {str(error).splitlines()[0]}; FlagGems would not load it as meant") from None
            for name, candidates in model.items():
                for c in candidates:
                    if (c.META.BLOCK_M, c.META.BLOCK_N, c.num_warps) not in KEPT:
                        raise UsageError(f"{path}: {name}: FlagGems' keep() drops {c.META}, {c.num_warps} warps")

    def examine(self) -> tuple[Check, ...]:
        """Whether FlagGems is there, in the version that was read."""
        try:
            found = metadata.version("flag-gems")
        except metadata.PackageNotFoundError:
            return (Check("flag-gems", Status.MISSING, "not installed", "pip install flag-gems"),)
        remedy = "" if found == "5.0.2" else "its loader was read in 5.0.2; look whether it still agrees"
        place = "a table is read from the package's own folder only; no variable names another"
        return (
            Check("flag-gems", Status.WARNING if remedy else Status.OK, found, remedy),
            Check("tune_configs.yaml", Status.WARNING, "inside the package", place),
        )


def _kept(tiles: Tiles) -> bool:
    return (tiles.block_m, tiles.block_n, tiles.num_warps) in KEPT


def _best_of_list(held_out: Entry, others: Sequence[Entry]) -> Entry | None:
    """FlagGems times every candidate at the shape: it finds the best of the list."""
    known = [(loss, entry) for entry in others if (loss := entry.loss_at(held_out)) is not None]
    return min(known, key=lambda pair: pair[0])[1] if known else next(iter(others), None)
