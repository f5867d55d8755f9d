"""Makes a table of stored winners, holds it to its format's rules, and writes it with its provenance."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.doctor import Check, DoctorReport, Status
from tuner.errors import UsageError
from tuner.exports import formats
from tuner.exports.entry import LeftOut
from tuner.exports.formats import Exporter
from tuner.exports.losses import Loss
from tuner.exports.own_files import MOST_PARSED_BYTES, read
from tuner.exports.provenance import provenance, read_provenance
from tuner.exports.selecting import Wanted, select
from tuner.exports.writing import Destination, state, write
from tuner.naming import did_you_mean, listed
from tuner.store.store import Store
from tuner.wording import counted

# What a stranger's table, whose provenance has a right digest, makes the code raise that reads it.
_NOT_OURS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError, SyntaxError, TypeError,
    ValueError,
)  # fmt: skip


@dataclass(frozen=True)
class FormatSummary:
    """A format as ``tuner export --list`` shows it."""

    name: str
    summary: str
    consumer: str
    seed: bool
    settings: Mapping[str, str]


@dataclass(frozen=True)
class ExportResult:
    """What was written, and what it is worth.

    ``entries`` is how many winners are in the table, ``estimated`` how many of them are estimates; ``losses`` say what
    the consumer's rule for other shapes costs; ``notes`` what makes the consumer load it.
    """

    format: str
    path: Path
    files: tuple[Path, ...]
    entries: int
    estimated: int
    seed: bool
    left_out: tuple[LeftOut, ...]
    losses: tuple[Loss, ...]
    notes: tuple[str, ...]


def list_formats() -> list[FormatSummary]:
    """Every format, by name."""
    return [_summary(formats.exporter(name)) for name in formats.names()]


def export(
    store: Store,
    format_name: str,
    path: Path,
    wanted: Wanted,
    *,
    seed: bool = False,
    replace: bool = False,
    settings: Mapping[str, str] | None = None,
) -> ExportResult:
    """See ``tuner.export``."""
    exporter = formats.exporter(format_name)
    given = dict(settings or {})
    for name in given:
        if name not in exporter.settings:
            known = f"known: {listed(exporter.settings)}" if exporter.settings else "it has none"
            raise UsageError(
                f"--set: {format_name} has no setting {name!r}{did_you_mean(name, exporter.settings)}; {known}"
            )
    if exporter.seed and not seed:
        raise UsageError(
            f"{exporter.consumer} runs a kernel of its own, on which our configs were not tuned: "
            "they are a start for it and no proven choice; add --seed to write them as that"
        )
    path = path.expanduser()
    destination = Destination(path, exporter.single_file)
    if path.is_dir() if exporter.single_file else path.is_file():
        kind = "file" if exporter.single_file else "folder"
        raise UsageError(f"--output: {format_name} writes a {kind}, but {path} is none; choose another path")
    selection = select(store, wanted, others=exporter.seed)
    table = exporter.table(selection, given, os.path.basename(os.path.realpath(path)))
    exporter.validate(table.files)
    left_out = (*selection.left_out, *table.left_out)
    written = write(destination, table.files, provenance(exporter, table, left_out), replace=replace)
    return ExportResult(
        format=format_name,
        path=path,
        files=tuple(written),
        entries=len(table.used),
        estimated=sum(entry.winner.record.estimated for entry, _ in table.used),
        seed=exporter.seed,
        left_out=left_out,
        losses=table.losses,
        notes=table.notes,
    )


def check_export(path: Path, store: Store | None) -> DoctorReport:
    """See ``tuner.check_export``."""
    path = path.expanduser()
    if not path.exists():
        return DoctorReport((Check("table", Status.MISSING, f"{path} is not there", "export it"),))
    destination = Destination(path, path.is_file())
    found_sidecar = read(destination.sidecar)
    if found_sidecar is None:
        remedy = "it was not written by `tuner export`; export to another path"
        return DoctorReport((Check("provenance", Status.MISSING, f"{destination.sidecar.name} is not there", remedy),))
    data = read_provenance(found_sidecar.decode("utf-8", "replace"))
    if data is None:
        remedy = "it was changed or cut off; export again with --replace"
        return DoctorReport((Check("provenance", Status.MISSING, f"{destination.sidecar.name} is damaged", remedy),))
    found = state(destination)
    checks = [
        Check(
            "provenance",
            Status.OK,
            f"{data['format']}, {counted(len(data['entries']), 'entry', 'entries')}, {data['generator']}",
        )
    ]
    again = "export again with --replace"
    checks += [
        Check("file", Status.MISSING, f"{destination.file(n)} was changed or cut off", again) for n in found.changed
    ]
    checks += [Check("file", Status.MISSING, f"{destination.file(n)} is gone", again) for n in found.missing]
    if not (found.changed or found.missing):
        checks += [
            Check("files", Status.OK, f"{len(found.files)} as written"),
            _still_valid(destination, data["format"]),
        ]
    checks += _software(data)
    if store is not None:
        checks.append(_newer_winners(data, store))
    return DoctorReport(tuple(checks))


def examine(format_name: str) -> DoctorReport:
    """What stands between a table of this format and its use on this machine."""
    return DoctorReport(formats.exporter(format_name).examine())


def _summary(exporter: Exporter) -> FormatSummary:
    return FormatSummary(exporter.name, exporter.summary, exporter.consumer, exporter.seed, exporter.settings)


def _still_valid(destination: Destination, format_name: str) -> Check:
    try:
        exporter = formats.exporter(format_name)
        texts = {name: (read(destination.file(name)) or b"").decode() for name in state(destination).files}
        large = [name for name, text in texts.items() if len(text) > MOST_PARSED_BYTES]
        if large:
            said = f"{destination.file(large[0])} has more than {MOST_PARSED_BYTES >> 20} MiB"
            return Check("rules", Status.WARNING, said, "it is as written, but was not looked into")
        exporter.validate(texts)
    except (*_NOT_OURS, UsageError) as error:
        said = str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
        return Check("rules", Status.MISSING, said, "export it again")
    return Check("rules", Status.OK, f"as {exporter.consumer} needs it")


def _software(data: Mapping[str, object]) -> list[Check]:
    from tuner.toolchain import triton_version

    stacks = data["stacks"]
    assert isinstance(stacks, Mapping)
    made_for = sorted({str(stack["triton"]) for stack in stacks.values()})
    here = triton_version()
    if made_for == [here]:
        return [Check("triton", Status.OK, here)]
    remedy = f"tuned with Triton {', '.join(made_for)}; what was the fastest may not be any more: tune again"
    return [Check("triton", Status.WARNING, here, remedy)]


def _newer_winners(data: Mapping[str, object], store: Store) -> Check:
    from tuner.device import Device
    from tuner.problem import Problem

    entries, devices = data["entries"], data["devices"]
    assert isinstance(entries, list) and isinstance(devices, Mapping)
    other = gone = 0
    for entry in entries:
        try:
            device, problem = Device.from_json(devices[entry["device"]]), Problem.from_json(entry["problem"])
            winner = store.best(problem, str(device.name), estimated=bool(entry["estimated"]))
        except _NOT_OURS as error:
            return Check("winners", Status.MISSING, f"{type(error).__name__}: {error}", "export it again")
        if winner is None:
            gone += 1
        elif winner.variant_hash != entry["variant"] or winner.config.as_json() != entry["config"]:
            other += 1
    if other or gone:
        value = f"{other} of {len(entries)} entries have another winner now, {gone} have none"
        return Check("winners", Status.WARNING, value, "export it again")
    return Check("winners", Status.OK, "every entry is still the stored winner")
