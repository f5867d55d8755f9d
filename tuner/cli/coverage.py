"""``tuner coverage``: what of a program is tuned here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, plain, print_json, say
from tuner.wording import time_text

if TYPE_CHECKING:
    from tuner.tuned_coverage import CoverageReport


def coverage(
    problems: Annotated[
        Path | None,
        typer.Option(
            "--problems",
            metavar="FILE",
            help="A problems file, such as `tuner capture` writes. Default: every problem that a study is of.",
            show_default=False,
        ),
    ] = None,
    operators: Annotated[
        list[str] | None,
        typer.Option("--operator", metavar="FILE.py:NAME", help="An operator of your own; repeat for more."),
    ] = None,
    target: options.Target = None,
    gpu: Annotated[
        bool | None,
        typer.Option(
            "--gpu/--no-gpu",
            help="Insist on a GPU, or look at estimates. Default: a GPU where there is one.",
            show_default=False,
        ),
    ] = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Which problems are tuned on this device and software, which only on other software (stale), and which not,
    weighed by how often they run. Exits with 1 where not all are tuned.

    \b
    Example:
      tuner coverage --problems problems.yaml
    """
    with answer_only(json):
        from tuner import tuned_coverage

        report = tuned_coverage.coverage(problems, operators=operators or (), target=target, gpu=gpu, db=db)
    if json:
        print_json({**report.as_json(), "rows": plain(report.problems)})
    else:
        _print(report)
    if any(item.status is not tuned_coverage.Coverage.TUNED for item in report.problems):
        raise typer.Exit(1)


def _print(report: CoverageReport) -> None:
    from tuner.cli.tables import print_table
    from tuner.tuned_coverage import Coverage

    rows = []
    for item in report.problems:
        known = f"{time_text(item.us, report.estimated)} {item.config}" if item.config else ""
        if item.status is Coverage.STALE:
            known += f" (on {item.stack})"
        if item.elsewhere:
            known = f"tuned on {', '.join(item.elsewhere)}"
        rows.append((str(item.status), item.count, item.problem.label, known))
    print_table("", ("", "calls", "problem", "what is stored"), rows, right=("calls",))
    basis = ", by estimates" if report.estimated else ""
    say(f"{report.device.name}, {report.stack.label}{basis}")
    parts = [f"{report.share(s):.0%} {s} ({report.calls(s)} calls)" for s in Coverage if report.calls(s)]
    say(f"calls: {', '.join(parts)}")
