"""``tuner studies`` and ``tuner show``: what was tried, and how it ended."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, note, print_json


def studies(db: options.Db = None, json: options.Json = False) -> None:
    """The studies in the database, the newest first.

    \b
    Example:
      tuner studies
    """
    from tuner.cli.study_view import print_studies, summary_json

    with answer_only(json):
        from tuner import api

        found = api.studies(db=db)
    if json:
        print_json([summary_json(s) for s in found])
    elif found:
        print_studies(found)
    else:
        note("no studies yet; run: tuner tune softmax --shape rows=4096,cols=4096 --dtype bf16")


def show(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="A study's name or number, from `tuner studies`.")],
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=1, help="How many of the fastest configs to list.")
    ] = 10,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """One study: its outcomes, why configs were refused, the fastest configs, the winner and its verdict.

    \b
    Example:
      tuner show 1 --top 20
    """
    from tuner.cli.study_view import detail_json, print_detail

    with answer_only(json):
        from tuner import api

        detail = api.show(study, db=db)
    if json:
        print_json(detail_json(detail))
    else:
        print_detail(detail, top)
