"""``tuner importance``: which parameters of a study mattered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import options
from tuner.cli.output import answer_only, print_json, say
from tuner.wording import time_text

if TYPE_CHECKING:
    from tuner.study_importance import StudyImportance, ValueRecord


def importance(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="A study's name or number, from `tuner studies`.")],
    evaluator: Annotated[
        str, typer.Option("--evaluator", metavar="NAME", help="ped-anova, or fanova (needs scikit-learn).")
    ] = "ped-anova",
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """Which parameters of a study mattered, and which of their values were never good, so that a space can be shrunk.

    \b
    Example:
      tuner importance 1
    """
    with answer_only(json):
        from tuner.study_importance import importance as study_importance

        found = study_importance(study, evaluator=evaluator, db=db)
    if json:
        print_json({**vars(found), "templates": [_template_json(t) for t in found.templates]})
    else:
        _print(found)


def _template_json(template: object) -> dict[str, object]:
    from tuner.study_importance import TemplateImportance

    assert isinstance(template, TemplateImportance)
    parameters = [{**vars(p), "never_good": p.never_good} for p in template.parameters]
    return {**vars(template), "parameters": parameters}


def _print(found: StudyImportance) -> None:
    from tuner.cli.tables import print_table
    from tuner.study_importance import LEAST_TIMED

    heading = "values (tried, best estimate)" if found.estimated else "values (tried, best)"
    rows = [
        (
            template.template,
            parameter.name,
            "" if parameter.share is None else f"{parameter.share:.0%}",
            ", ".join(f"{r.value} ({_tried(r)})" for r in parameter.values if not r.never_good),
            ", ".join(f"{r.value} ({_tried(r)})" for r in parameter.values if r.never_good),
        )
        for template in found.templates
        for parameter in template.parameters
    ]
    print_table("", ("template", "parameter", "importance", heading, "never good"), rows, right=("importance",))
    timed, time = ("estimated", "an estimate") if found.estimated else ("timed", "a time")
    for template in found.templates:
        best = "no time" if template.best_ratio is None else f"best {template.best_ratio:.2f}x"
        few = template.timed < LEAST_TIMED
        why = f"; fewer than {LEAST_TIMED} with {time}, so no importance is said" if few else ""
        say(f"{template.template}: {template.tried} tried, {template.timed} {timed}, {best}{why}")
    say(f"{found.study}: best {time_text(found.best_us, found.estimated)}; importance by {found.evaluator}")


def _tried(record: ValueRecord) -> str:
    return f"{record.tried}, {'failed' if record.best_ratio is None else f'{record.best_ratio:.2f}x'}"
