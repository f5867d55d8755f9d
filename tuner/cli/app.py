"""The typer application: every command, from one module a group."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from tuner.cli import (
    best,
    capture,
    check,
    coverage,
    db,
    doctor,
    export,
    importance,
    operators,
    query,
    record,
    regressions,
    remeasure,
    render,
    replay,
    reproduce,
    studies,
    tune,
)


def command() -> Callable[..., Any]:
    """The command that typer makes of the application."""
    return typer.main.get_command(_app())


@functools.cache
def _app() -> typer.Typer:
    # Plain help: no rich to load, and text that documentation can quote.
    app = typer.Typer(
        name="tuner",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for function in (
        doctor.doctor,
        operators.operators,
        tune.tune,
        coverage.coverage,
        best.best,
        studies.studies,
        studies.show,
        importance.importance,
        query.query,
        regressions.regressions,
        remeasure.remeasure,
        reproduce.reproduce,
        export.export,
        render.render,
        check.check,
        check.time,
        replay.replay,
        record.record,
    ):
        app.command()(function)
    # What follows the script is the script's.
    app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(capture.capture)
    app.add_typer(db.db_app())
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        from tuner.shipped import DISTRIBUTION

        try:
            typer.echo(f"tuner {version(DISTRIBUTION)}")
        except PackageNotFoundError:
            typer.echo("tuner (not installed)")
        raise typer.Exit()


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Finds the fastest Triton kernel that is right: searches variants and launch configs, checks each against a
    two-pass reference before it is timed, and remembers every result.

    \b
    Example:
      tuner doctor
      tuner tune softmax --shape rows=4096,cols=32768 --dtype bf16
    """
