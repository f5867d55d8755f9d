"""``tuner record``: a search space with every config's outcome, as a file to replay searches on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli import EXIT_INTERRUPTED, options
from tuner.cli.output import answer_only, err, note, print_json, say
from tuner.cli.problem_arguments import read_problem, the_operator
from tuner.wording import time_text


def record(
    operator: options.OperatorName = None,
    named: options.NamedOperator = None,
    shape: options.Shape = None,
    dtype: options.Dtype = None,
    causal: options.Causal = None,
    scale: options.Scale = None,
    option: options.Extra = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The recording to write (.csv or .csv.gz).")
    ] = Path("recorded_space.csv.gz"),
    estimated: Annotated[bool, typer.Option("--estimated", help="Record estimates; needs no GPU.")] = False,
    space: options.SpacePath = None,
    target: options.Target = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", metavar="N", min=1, help="Processes that compile. Default: one a core.", show_default=False
        ),
    ] = None,
    seed: options.Seed = 0,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Tries every valid config of a problem on the GPU, and writes what became of each: for `tuner replay`.

    \b
    Example:
      tuner record softmax --shape rows=4096,cols=32768 --dtype bf16 -o softmax.csv.gz
    """
    problem = read_problem(the_operator(operator, named), shape, dtype, causal, scale, option)
    with answer_only(json):
        from tuner.progress import make_display
        from tuner.space_recording import record as record_space

        with make_display(err()) as display:
            result = record_space(
                problem,
                output,
                space=space,
                estimated=estimated,
                target=target,
                workers=workers,
                seed=seed,
                db=db,
                on_event=display,
            )
    if json:
        print_json(result)
    elif result.complete:
        best = time_text(result.best_us, result.estimated) if result.best_us is not None else "none"
        say(f"wrote {result.path}: {result.configs} configs, {result.failed} without a time, best {best}")
    if not result.complete:
        note(f"{result.configs} configs so far, nothing is written yet; run the same command to go on")
        raise typer.Exit(EXIT_INTERRUPTED)
