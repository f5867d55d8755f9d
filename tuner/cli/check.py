"""``tuner check`` and ``tuner time``: one config alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, note, plain, print_json, say
from tuner.cli.problem_arguments import read_problem, the_operator

if TYPE_CHECKING:
    from tuner.results import TimeResult
    from tuner.trial import CheckReport

File = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="A kernel of your own: a file with a launch() as templates have."),
]
Tiles = Annotated[
    str | None,
    typer.Option(
        "--tiles",
        metavar="NAME=N,...",
        help="With --file: elements a tile, as in q_len=128,kv_len=64. Default: its TILES, else its block sizes.",
        show_default=False,
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="NAME=VALUE,...",
        help="With --file: its arithmetic, as in p=fp32,dot=tf32. Default: its PRECISION, else the dtype's.",
        show_default=False,
    ),
]


def check(
    operator: options.OperatorName = None,
    named: options.NamedOperator = None,
    shape: options.Shape = None,
    dtype: options.Dtype = None,
    causal: options.Causal = None,
    scale: options.Scale = None,
    option: options.Extra = None,
    config: options.ConfigText = None,
    space: options.SpacePath = None,
    file: File = None,
    tiles: Tiles = None,
    precision: Precision = None,
    target: options.Target = None,
    seed: options.Seed = 0,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Checks one config, or a kernel file of your own, against the two-pass reference, and prints the figures.

    Exits with 1 where it is wrong, and says which inputs showed it and the likely cause; and where it crashes.

    \b
    Example:
      tuner check softmax --shape rows=64,cols=1000 --dtype bf16 --config template=online,BLOCK_COLS=1024
      tuner check softmax --shape rows=64,cols=1000 --dtype bf16 --file my_kernel.py --config BLOCK=256
    """
    problem = read_problem(the_operator(operator, named), shape, dtype, causal, scale, option)
    own: dict[str, Any] = {"file": file, "tiles": tiles, "precision": precision}
    own = {name: value for name, value in own.items() if value is not None}
    with answer_only(json):
        from tuner import api

        report = api.check(problem, space=space, config=config, target=target, seed=seed, **own)
    if config is None and file is None:
        note("no --config is given, so the plain config of the first template that applies is checked")
    if json:
        print_json({"passed": report.passed, "worst_ratio": report.worst_ratio, **check_json(report)})
    else:
        print_check(report)
    if not report.passed:
        raise typer.Exit(1)


def time(
    operator: options.OperatorName = None,
    named: options.NamedOperator = None,
    shape: options.Shape = None,
    dtype: options.Dtype = None,
    causal: options.Causal = None,
    scale: options.Scale = None,
    option: options.Extra = None,
    config: options.ConfigText = None,
    space: options.SpacePath = None,
    seed: options.Seed = 0,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Checks one config, then measures it. Exits with 1 where it is wrong; a wrong config is not measured.

    \b
    Example:
      tuner time softmax --shape rows=4096,cols=4096 --dtype bf16 --config template=online,num_warps=8
    """
    problem = read_problem(the_operator(operator, named), shape, dtype, causal, scale, option)
    with answer_only(json):
        from tuner import api

        result = api.time(problem, space=space, config=config, db=db, seed=seed)
    if json:
        print_json({"estimated": result.estimated, **plain(vars(result)), "check": check_json(result.check)})
    else:
        print_time(result)
    if not result.check.passed:
        raise typer.Exit(1)


def check_json(report: CheckReport) -> dict[str, Any]:
    """The JSON of a check; its infinities are text."""
    return {"passed": report.passed, "reason": report.reason, **report.as_json()}


def print_check(report: CheckReport) -> None:
    """A row an input family, then the verdict."""
    from tuner.cli.tables import print_table

    if report.subject:
        say(f"checked: {report.subject}")
    print_table(
        "",
        ("inputs", "problem", "result", "error/bound", "error", "bound", "at"),
        [
            (
                f.family,
                f.problem,
                "right" if f.passed else f"wrong: {f.reason}",
                f"{f.ratio:.3f}",
                f"{f.error:.3g}",
                f"{f.bound:.3g}",
                f"{f.output}{list(f.where)}" if f.where else f.output,
            )
            for f in report.families
        ],
        right=("error/bound", "error", "bound"),
    )
    where = "in the interpreter" if report.mode == "interpreter" else f"on {report.mode}"
    if report.passed:
        say(f"right: the largest error is {report.worst_ratio:.3f} of its bound ({where}, {report.seconds:.1f} s)")
    else:
        say(f"wrong: {report.reason} ({where}, {report.seconds:.1f} s)")
        if report.cause:
            say(f"likely cause: {report.cause}")


def print_time(result: TimeResult) -> None:
    """The check in one line, the measurement with its interval, and the anchor beside it."""
    from tuner.cli.tables import print_facts
    from tuner.wording import interval_text, time_text

    report, m, anchor = result.check, result.measurement, result.anchor
    facts: list[tuple[str, object]] = [
        ("problem", result.problem.label),
        ("config", result.config.label),
        ("device", result.device.name),
        ("stack", result.stack.label),
        ("check", f"right, {report.worst_ratio:.3f} of the bound" if report.passed else f"wrong: {report.reason}"),
    ]
    if m is not None:
        facts += [
            ("time", f"{time_text(m.median_us, result.estimated)} {interval_text(m.low_us, m.high_us)}"),
            ("samples", f"{len(m.samples_us)} ({m.protocol})"),
            ("notes", "; ".join(m.notes)),
        ]
    if m is not None and anchor is not None:
        ratio = m.median_us / anchor.median_us
        facts.append(("anchor", f"{time_text(anchor.median_us, result.estimated)}; time/anchor {ratio:.3f}"))
    print_facts(facts)
