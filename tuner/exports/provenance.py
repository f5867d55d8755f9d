"""Where every line of a table comes from, as a JSON file beside it. No format has room for that inside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict

from tuner.canonical import digest
from tuner.exports.entry import Entry, LeftOut
from tuner.exports.formats import Exporter, Table
from tuner.exports.own_files import is_inside
from tuner.plain_json import read_json
from tuner.shipped import DISTRIBUTION, version

VERSION = 1
SUFFIX = ".provenance.json"


def _inside(name: str) -> str:
    if not is_inside(name):
        raise ValueError("not the name of a file of a table")
    return name


class SidecarEntry(BaseModel):
    """The form of one entry, as far as it is read again."""

    device: str
    estimated: bool
    variant: str
    problem: dict[str, Any]
    config: dict[str, Any]


class SidecarStack(BaseModel):
    """The form of one software stack, as far as it is read again."""

    triton: str


class Sidecar(BaseModel):
    """The form of the file, as far as it is read again. It may be a stranger's: anybody can make its digest."""

    model_config = ConfigDict(strict=True)
    format: str
    generator: str
    files: dict[Annotated[str, AfterValidator(_inside)], str]
    entries: list[SidecarEntry]
    devices: dict[str, dict[str, Any]]
    stacks: dict[str, SidecarStack]


def sidecar_path(single_file: bool) -> str:
    """Its path below the table's folder, or what is added to the name of a table that is one file."""
    return SUFFIX if single_file else f"tuner{SUFFIX}"


def provenance(exporter: Exporter, table: Table, left_out: Sequence[LeftOut]) -> str:
    """The text. It holds no moment of its own, so the same database gives the same bytes."""
    data: dict[str, Any] = {
        "provenance_version": VERSION,
        "generator": f"{DISTRIBUTION} {version()}",
        "format": exporter.name,
        "consumer": exporter.consumer,
        "seed": exporter.seed,
        "estimated": any(entry.winner.record.estimated for entry, _ in table.used),
        "files": {path: sha256(text) for path, text in sorted(table.files.items())},
        "losses": [asdict(loss) for loss in table.losses],
        "left_out": [asdict(item) for item in left_out],
        "devices": {e.device.key: e.device.as_json() for e, _ in table.used},
        "stacks": {e.winner.stack.key: e.winner.stack.as_json() for e, _ in table.used},
        "entries": [{"at": at, **_entry(entry)} for entry, at in table.used],
    }
    data["digest"] = digest(data, 64)
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def sha256(text: str | bytes) -> str:
    """The SHA-256 of a file's text, in hex."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def read_provenance(text: str) -> Mapping[str, Any] | None:
    """What a sidecar says; None where the text is none of ours, truncated, or changed since it was written."""
    try:
        data = read_json(text)
        if not isinstance(data, dict) or data.get("provenance_version") != VERSION:
            return None
        said = data.pop("digest", None)
        if said != digest(data, 64):
            return None
        Sidecar.model_validate(data)
    except ValueError:  # pydantic's is one
        return None
    return data


def _entry(entry: Entry) -> dict[str, Any]:
    winner, record, check = entry.winner, entry.winner.record, entry.check
    return {
        "problem": entry.problem.as_json(),
        "device": entry.device.key,
        "stack": winner.stack.key,
        "config": winner.config.as_json(),
        "variant": entry.variant.hash,
        "template": f"{entry.variant.operator}/{entry.variant.template}",
        "template_hash": entry.variant.template_hash,
        "search_space": entry.space_digest,
        "study": winner.study_name,
        "stored_at": winner.created_at.isoformat(),
        "median_us": record.median_us,
        "interval_us": [record.low_us, record.high_us],
        "plain_us": record.plain_us,
        "verdict": record.verdict,
        "estimated": record.estimated,
        "check": {
            "mode": check.mode,
            "families": sorted({family.family for family in check.families}),
            "worst_ratio": check.worst_ratio,
            "promise": check.promise,
        },
    }
