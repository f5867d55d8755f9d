"""``tuner reproduce``: one stored measurement run again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, plain, print_json, say

if TYPE_CHECKING:
    from tuner.reproducing import Reproduction


def reproduce(
    measurement: Annotated[
        int, typer.Argument(metavar="MEASUREMENT", min=1, help="Its number, from `tuner query measurements`.")
    ],
    operator: options.OfOperator = None,
    trust_source: Annotated[
        bool,
        typer.Option("--trust-source", help="Run the stored source though this installation does not render it so."),
    ] = False,
    space: options.SpacePath = None,
    seed: options.Seed = 0,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Checks and times one stored measurement's config again, from its stored source, and says whether it holds.

    Needs the GPU that it was taken on; nothing is stored. Exits with 1 where it does not hold.

    \b
    Example:
      tuner query measurements --operator softmax
      tuner reproduce 17
    """
    with answer_only(json):
        from tuner import api

        result = api.reproduce(measurement, operator=operator, space=space, trust_source=trust_source, seed=seed, db=db)
    if json:
        print_json(reproduction_json(result))
    else:
        _print(result)
    if not result.holds:
        raise typer.Exit(1)


def reproduction_json(result: Reproduction) -> dict[str, Any]:
    """The JSON of a reproduction."""
    data: dict[str, Any] = plain(result)
    data["checks"] = [{"passed": check.passed, "reason": check.reason, **check.as_json()} for check in result.checks]
    return {"estimated": False, "holds": result.holds, "verdict": str(result.row.verdict), **data}


def _print(result: Reproduction) -> None:
    from tuner.cli.regression_view import change_text, effect_text
    from tuner.cli.tables import print_facts
    from tuner.regression.report import Verdict
    from tuner.wording import interval_text, time_text

    row, now = result.row, result.measured
    said = {Verdict.SAME: "holds", Verdict.AMBIGUOUS: "not decided", Verdict.REGRESSION: "does not hold: slower now"}
    said |= {Verdict.IMPROVEMENT: "does not hold: faster now", Verdict.WRONG: "does not hold: wrong"}
    span = f" {interval_text(now.low_us, now.high_us)}" if now else ""
    print_facts(
        [
            ("measurement", result.measurement),
            ("problem", row.problem.label),
            ("config", row.config),
            ("device", row.device),
            ("source", "stored, trusted by you" if result.trusted else "stored; this installation renders the same"),
            ("then", f"{time_text(row.before.median_us)} on {row.before.stack}" if row.before else None),
            ("now", f"{time_text(row.after.median_us)}{span} on {row.after.stack}" if row.after else None),
            ("change", f"{change_text(row.change)} {effect_text(row.effect)}" if row.effect else None),
            ("limit", f"{row.threshold:.1%}" if row.threshold else None),
            ("notes", "; ".join(row.notes)),
        ]
    )
    say(f"{said.get(row.verdict, str(row.verdict))}{': ' + row.reason if row.reason else ''}")
