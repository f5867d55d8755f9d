"""``tuner replay``: samplers on recorded search spaces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, print_json
from tuner.search import DEFAULT_SAMPLER, SAMPLERS


def replay(
    spaces: Annotated[list[Path], typer.Argument(metavar="SPACE", help="Recorded spaces (files).")],
    sampler: Annotated[
        list[str] | None,
        typer.Option(
            "--sampler",
            metavar="NAME",
            help=f"One of {', '.join(SAMPLERS)}; repeat for more. Default: {DEFAULT_SAMPLER}.",
        ),
    ] = None,
    budget: Annotated[int, typer.Option("--budget", min=1, metavar="N", help="Configs that a search tries.")] = 100,
    seeds: Annotated[int, typer.Option("--seeds", min=1, metavar="K", help="Searches a sampler and space.")] = 20,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Runs a sampler on recorded search spaces, without a GPU, and says how near to the best config it comes: by
    configs tried, and by the time that compiling, checking and timing them took. The database is not used.

    \b
    Example:
      tuner replay gemm_rtx3090.csv.gz --sampler auto --sampler tpe --budget 100 --seeds 20
    """
    from tuner.cli.replay_view import print_replays

    with answer_only(json):
        from tuner.replay.public import replay_search

        results = replay_search(spaces, samplers=tuple(sampler or (DEFAULT_SAMPLER,)), budget=budget, seeds=seeds)
    if json:
        print_json(results)
    else:
        print_replays(results)
