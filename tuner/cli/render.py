"""``tuner render``: one config's kernel as a standalone file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, note, print_data, print_json
from tuner.cli.problem_arguments import read_problem, the_operator
from tuner.errors import UsageError


def render(
    operator: options.OperatorName = None,
    named: options.NamedOperator = None,
    shape: options.Shape = None,
    dtype: options.Dtype = None,
    causal: options.Causal = None,
    scale: options.Scale = None,
    option: options.Extra = None,
    config: options.ConfigText = None,
    best: Annotated[bool, typer.Option("--best", help="The stored winner, in place of --config.")] = False,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="With --best: the winner of this device.")
    ] = None,
    estimated: Annotated[bool, typer.Option("--estimated", help="With --best: an estimated winner too.")] = False,
    triton_version: Annotated[
        str | None,
        typer.Option(
            "--triton-version",
            metavar="VERSION",
            help="Spell everything for this Triton, such as 2.1. Default: a file that suits any.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write here instead of to stdout; only a rendered file is replaced."
        ),
    ] = None,
    space: options.SpacePath = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """The standalone source of one config: it runs with torch and Triton alone. Without --config and --best, the plain
    config's. With --best it exits with 1 where no winner is stored, or only an estimated one.

    \b
    Example:
      tuner render softmax --shape rows=4096,cols=4096 --dtype bf16 --config template=online,num_warps=8 -o kernel.py
    """
    if best and config is not None:
        raise UsageError("--best and --config exclude each other; give one of them")
    problem = read_problem(the_operator(operator, named), shape, dtype, causal, scale, option)
    with answer_only(json):
        from tuner import api
        from tuner.standalone import is_rendered

        source = api.render(
            problem,
            space=space,
            config=config,
            best=best,
            triton_version=triton_version,
            db=db,
            device=device,
            estimated=estimated,
        )
    if output is not None:
        try:
            if output.exists() and not is_rendered(output.read_text(encoding="utf-8", errors="replace")):
                raise UsageError(f"{output} is there and no rendered file, so it is not replaced; choose another path")
            output.write_text(source, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {output}: {error.strerror}; choose another --output") from error
        note(f"wrote {output}")
    if json:
        print_json({"problem": problem, "path": output, "source": source})
    elif output is None:
        print_data(source if source.endswith("\n") else f"{source}\n")
