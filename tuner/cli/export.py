"""``tuner export``: stored winners as tables that other libraries load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, note, print_json, say
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.doctor import DoctorReport
    from tuner.exports.exporting import ExportResult, FormatSummary

_MOST_SHOWN = 8


def export(
    format: Annotated[
        str | None, typer.Option("--format", "-f", metavar="FORMAT", help="See --list.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="The file or folder to write.", show_default=False),
    ] = None,
    operator: options.OfOperator = None,
    device: options.DevicePart = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="DATE", help="Stored since then, such as 2026-11-30 (UTC).", show_default=False
        ),
    ] = None,
    estimated: Annotated[bool, typer.Option("--estimated", help="Take estimated winners too.")] = False,
    old_checks: Annotated[
        bool, typer.Option("--old-checks", help="Take winners too whose check is older than the rules.")
    ] = False,
    seed: Annotated[
        bool, typer.Option("--seed", help="Write a start for a consumer that runs a kernel of its own.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the format; see --list.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Write over an exported file that was changed by hand since.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Write nothing: look at the table at PATH.")] = False,
    list_them: Annotated[bool, typer.Option("--list", help="Write nothing: list the formats.")] = False,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """The best configs as a table that another library loads today, with provenance beside it. --check exits with 1
    where the table at PATH is foreign, cut off, changed or no longer valid.

    \b
    Example:
      tuner export --format python -o tuned_kernels
    """
    with answer_only(json):
        from tuner.exports import public

        if list_them:
            formats = public.export_formats()
        elif output is None:
            raise UsageError("--output is missing; name the file or folder of the table")
        elif check:
            report = public.check_export(output, db=db)
        elif format is None:
            raise UsageError("--format is missing; `tuner export --list` lists them")
        else:
            result = public.export(
                format, output, operator=operator, device=device, since=since, estimated=estimated,
                old_checks=old_checks, seed=seed, replace=replace, settings=_settings(settings), db=db,
            )  # fmt: skip
    if list_them:
        _print_formats(formats, json)
    elif check:
        print_report(report, json)
    else:
        _print_result(result, json)


def print_report(report: DoctorReport, as_json: bool) -> None:
    """What was found, and exit code 1 where something is not as it must be."""
    from tuner.cli.tables import print_table

    if as_json:
        print_json(report.as_json())
    else:
        rows = [(c.name, c.status, c.value, c.remedy) for c in report.checks]
        print_table("", ("what", "", "found", "what to do"), rows)
    if not report.ok:
        raise typer.Exit(1)


def _settings(words: list[str] | None) -> dict[str, str]:
    settings: dict[str, str] = {}
    for word in words or ():
        name, equals, value = (part.strip() for part in word.partition("="))
        if not (name and equals and value) or name in settings:
            raise UsageError(f"--set: cannot take {word!r}; write NAME=VALUE, and each name once")
        settings[name] = value
    return settings


def _print_formats(formats: list[FormatSummary], as_json: bool) -> None:
    from tuner.cli.tables import print_table

    if as_json:
        print_json(formats)
        return
    rows = [(f.name, f.consumer, f.summary + (" (a start only: needs --seed)" if f.seed else "")) for f in formats]
    print_table("", ("format", "loaded by", "what it is"), rows)
    for f in formats:
        for name, text in f.settings.items():
            say(f"{f.name} --set {name}=...: {text}")


def _print_result(result: ExportResult, as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    of_them = f", {result.estimated} of them estimated" if result.estimated else ""
    winners = "1 winner" if result.entries == 1 else f"{result.entries} winners"
    say(f"wrote {result.path} ({len(result.files)} files): {winners}{of_them}")
    if result.seed:
        say("a start, not a proven choice: the consumer runs another kernel than the one that was tuned")
    for loss in result.losses:
        say(loss.text)
    for text in result.notes:
        say(text)
    for item in result.left_out[:_MOST_SHOWN]:
        note(f"left out: {item.what}: {item.why}")
    if len(result.left_out) > _MOST_SHOWN:
        note(f"left out: {len(result.left_out) - _MOST_SHOWN} more; --json or the provenance lists them")
