"""``tuner doctor``: what this machine has, what is missing, and how to get it."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, print_json, say

Looked = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="NAME",
        help="GPU to compile for without having it (sm_90, a100, mi300x...), or the consumer of an exported table "
        "(fla, flex...): what stands between a table and its use here.",
        show_default=False,
    ),
]


def doctor(target: Looked = None, db: options.Db = None, json: options.Json = False) -> None:
    """What this machine has: GPU, driver, torch, Triton and compiler versions, cache, database. Exits with 1 where
    something that tuning needs is missing.

    \b
    Example:
      tuner doctor --target a100
    """
    from tuner.cli.tables import print_table
    from tuner.store.location import default_url

    if target is not None:
        from tuner.exports.formats import names

        if target in names():
            _consumer(target, json)
            return
    with answer_only(json):
        from tuner.doctor import doctor as examine
        from tuner.machine import DEFAULT_TARGET
        from tuner.workspace import cache_folder

        url = db or default_url()
        report = examine(url, target or DEFAULT_TARGET, cache_folder())
    if json:
        print_json(report.as_json())
    else:
        print_table(
            "", ("what", "", "found", "what to do"), [(c.name, c.status, c.value, c.remedy) for c in report.checks]
        )
        say("ready to tune" if report.ok else "not ready: see what is missing above")
    if not report.ok:
        raise typer.Exit(1)


def _consumer(name: str, as_json: bool) -> None:
    from tuner.cli.export import print_report

    with answer_only(as_json):
        from tuner.exports.exporting import examine

        report = examine(name)
    print_report(report, as_json)
