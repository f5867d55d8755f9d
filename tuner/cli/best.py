"""``tuner best``: the stored winner of a problem."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, note, print_json
from tuner.cli.problem_arguments import read_problem, the_operator
from tuner.own_operators.files import spoken_name
from tuner.problem import Problem


def best(
    operator: options.OperatorName = None,
    named: options.NamedOperator = None,
    shape: options.Shape = None,
    dtype: options.Dtype = None,
    causal: options.Causal = None,
    scale: options.Scale = None,
    option: options.Extra = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="NAME", help='Of this device only, such as "NVIDIA H200".'),
    ] = None,
    estimated: Annotated[bool, typer.Option("--estimated", help="Take an estimated winner too.")] = False,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """The winner that is stored for a problem, and the device that it is of. Exits with 1 where none is.

    The simplest of a tie, which a verdict names, is a plain config, else the one of the smallest footprint in registers
    and shared memory. Where several devices have a winner, --device must say which.

    \b
    Example:
      tuner best softmax --shape rows=4096,cols=32768 --dtype bf16
    """
    from tuner.cli.winner_view import print_winner

    problem = read_problem(the_operator(operator, named), shape, dtype, causal, scale, option)
    with answer_only(json):
        from tuner import api

        winner = api.best(problem, db=db, device=device, estimated=estimated)
        is_estimated = winner is None and not estimated and api.best(problem, db=db, device=device, estimated=True)
    if json:
        print_json(None if winner is None else {"estimated": winner.record.estimated, **vars(winner)})
    elif winner is not None:
        print_winner(winner)
    if winner is None:
        where = f" on {device}" if device else ""
        if is_estimated:
            note(f"only an estimated winner is stored for {problem.label}{where}: --estimated shows it")
        else:
            note(f"nothing is stored for {problem.label}{where}; run: {tune_command(problem)}")
        raise typer.Exit(1)


def tune_command(problem: Problem) -> str:
    """The command that tunes ``problem``."""
    words = ["tuner tune", spoken_name(problem.operator), "--shape", ",".join(f"{n}={v}" for n, v in problem.shape)]
    words += ["--dtype", problem.dtype]
    words += [f"--option {name}={str(value).lower()}" for name, value in problem.options if value not in (None, False)]
    return " ".join(words)
