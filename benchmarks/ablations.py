"""What each structural choice is worth, from stored studies: the best time with it over the best time, in Markdown.

    python -m benchmarks.ablations --db tuner.db [another.db ...]

Of every problem the study with the most trials counts, one column a problem. A cell says how the best config with
that template, or with that value of a parameter of it, compares with the study's best (1.00: it is the best), and in
brackets how many configs with it were tried; ``-`` where none has a time. Few tried mean that the sampler turned away
early.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import tuner
from tuner.study_importance import StudyImportance

FEWEST = 20
"""Trials of a study that counts."""

_ROWS = ("softmax", "log_softmax", "logsumexp", "softmax_bwd", "cross_entropy", "cross_entropy_bwd")
_SIZES_FOR_PEOPLE = {
    **dict.fromkeys(_ROWS, ("rows", "cols")),
    "softmax_topk": ("rows", "cols", "k"),
    **dict.fromkeys(("attention_fwd", "attention_bwd"), ("batch", "heads", "q_len", "head_dim")),
    "attention_decode": ("batch", "kv_len", "page_size"),
}


def studies(databases: Sequence[str]) -> dict[str, dict[str, StudyImportance]]:
    """By operator and problem (for people), what its largest study says."""
    found: dict[str, dict[str, StudyImportance]] = {}
    every = [(study, db) for db in databases for study in tuner.studies(db=db)]
    for study, db in sorted(every, key=lambda pair: pair[0].trials):
        if study.trials >= FEWEST:
            problem = study.problem
            names = _SIZES_FOR_PEOPLE.get(problem.operator, tuple(problem.sizes))
            sizes = " ".join(str(problem.sizes[name]) for name in names)
            set_options = [name for name, value in problem.settings.items() if value is True]
            title = " ".join([sizes, problem.dtype, *set_options])
            found.setdefault(problem.operator, {})[title] = tuner.importance(study.name, db=db)
    return found


def cells(told: StudyImportance) -> Iterator[tuple[tuple[str, str], str]]:
    """A row's title (template, choice) and the cell of this study. Launch parameters are not structural."""
    for template in told.templates:
        yield (template.template, ""), _cell(template.best_ratio, template.tried)
        for parameter in template.parameters:
            if parameter.name.isupper() and not parameter.name.startswith("BLOCK_"):
                for record in parameter.values:
                    title = (template.template, f"{parameter.name}={record.value}")
                    yield title, _cell(record.best_ratio, record.tried)


def table(of_problems: dict[str, StudyImportance]) -> list[str]:
    """Rows of one operator: templates in the order of names, each with its choices below."""
    columns = {title: dict(cells(told)) for title, told in of_problems.items()}
    rows = sorted({row for column in columns.values() for row in column})
    lines = [f"| template | choice | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for row in rows:
        shown = [column.get(row, "") for column in columns.values()]
        lines.append(f"| `{row[0]}` | {f'`{row[1]}`' if row[1] else 'all'} | {' | '.join(shown)} |")
    return lines


def _cell(ratio: float | None, tried: int) -> str:
    return f"{'-' if ratio is None else f'{ratio:.2f}'} ({tried})"


def main() -> None:
    """Print a section an operator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--db", nargs="+", required=True)
    arguments = parser.parse_args()
    for operator, of_problems in studies(arguments.db).items():
        print(f"## {operator}\n")
        print(*table(of_problems), "", sep="\n")


if __name__ == "__main__":
    main()
