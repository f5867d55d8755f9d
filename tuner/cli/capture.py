"""``tuner capture``: which problems a program runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, print_json, say

if TYPE_CHECKING:
    from tuner.capturing.recording import Recording


def capture(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The Python script to run.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="The script's own.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The problems file to write.")] = Path(
        "captured.yaml"
    ),
    operators: Annotated[
        list[str] | None,
        typer.Option(
            "--operator", metavar="FILE.py:NAME", help="Look for an operator of your own too; repeat for more."
        ),
    ] = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Runs a script and records which operators it runs, with which shapes and dtypes, and how often, as a problems
    file for `tuner tune --problems` and `tuner coverage`. Options of this command go before the script.

    \b
    Example:
      tuner capture -o problems.yaml train.py --steps 10
      tuner coverage --problems problems.yaml
    """
    with answer_only(json):
        from tuner.capturing.script import capture_script

        recording = capture_script(script, arguments or [], output, operators or ())
    if json:
        print_json({"path": output, "problems": recording.problems, "not_captured": recording.not_captured})
    else:
        _print(recording, output)


def _print(recording: Recording, output: Path) -> None:
    from tuner.cli.tables import print_table

    rows = [(item.count, item.problem.label, "; ".join(item.notes)) for item in recording.problems]
    print_table("", ("calls", "problem", "note"), rows, right=("calls",))
    others = [(item.count, item.what, item.why) for item in recording.not_captured]
    print_table("not tunable", ("calls", "what", "why"), others, right=("calls",))
    calls = sum(item.count for item in recording.problems)
    say(f"wrote {output}: {len(recording.problems)} problems, {calls} calls")
