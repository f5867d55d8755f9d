"""``tuner regressions``: what got slower, faster, wrong or refused between two points."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli import EXIT_WORSE, options
from tuner.cli.output import answer_only, note, print_json, say
from tuner.errors import UsageError
from tuner.wording import remeasure_command

_POINT = (
    "triton=V, torch=V, driver=V, stack=KEY, since=DATE, until=DATE (or date=DATE), templates=GIT-REVISION, db=URL; "
    "commas between several."
)


def regressions(
    before: Annotated[
        str, typer.Option("--before", metavar="POINT", help=f"The point to compare with: {_POINT}", show_default=False)
    ] = "",
    after: Annotated[
        str, typer.Option("--after", metavar="POINT", help="The point in question, likewise.", show_default=False)
    ] = "",
    of_operator: options.OfOperator = None,
    device: options.DevicePart = None,
    fail_over: Annotated[
        str | None,
        typer.Option(
            "--fail-over",
            metavar="SHARE",
            help="Exit with 3 where something is wrong or refused now, or slower by more than this (3% or 0.03).",
            show_default=False,
        ),
    ] = None,
    estimated: Annotated[
        bool, typer.Option("--estimated", help="Compare estimates with estimates; no time is judged.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="List the unchanged ones too.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """What became of every stored winner between two points: two software stacks, dates, revisions or databases.

    Without --before and --after: the newest software stack of each device against the one before it. Everything comes
    from stored samples; nothing is measured. Exits with 3 where --fail-over says so, with 1 where nothing could be
    compared.

    \b
    Example:
      tuner regressions --before triton=3.6 --after triton=3.7 --fail-over 3%
      tuner regressions --before until=2026-05-01 --after since=2026-05-02
      tuner regressions --before templates=v1.2 --after templates=HEAD
      tuner regressions --before db=main.db --after db=branch.db --markdown
    """
    from tuner.cli.regression_view import markdown_text, print_regressions, report_json

    if json and markdown:
        raise UsageError("--json and --markdown exclude each other; choose one")
    over = None if fail_over is None else read_share(fail_over, "--fail-over")
    with answer_only(json):
        from tuner import api

        report = api.regressions(before, after, operator=of_operator, device=device, estimated=estimated, db=db)
    worse = report.worse(over or 0.0)
    if json:
        print_json(report_json(report, over))
    elif markdown:
        say(markdown_text(report, every))
    else:
        print_regressions(report, every)
    if report.compared == 0:
        how = "estimated" if estimated else "measured"
        note(f"nothing could be compared: no winner was {how} at both points; run `{remeasure_command(estimated)}`")
        raise typer.Exit(1)
    if over is not None and worse:
        note(f"{len(worse)} of {len(report.rows)} worse (--fail-over {fail_over})")
        raise typer.Exit(EXIT_WORSE)


def read_share(text: str, flag: str) -> float:
    """``3%`` or ``0.03`` as a share. Raises ``UsageError``."""
    number, percent = text.strip().removesuffix("%").strip(), text.strip().endswith("%")
    try:
        share = float(number) / (100.0 if percent else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 <= share < 1.0:
        raise UsageError(f"{flag}: cannot read {text!r}; write a share below 1, such as 3% or 0.03")
    return share
