"""A comparison of two points, printed for people, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.cli.output import note, plain, say
from tuner.cli.tables import print_table
from tuner.regression.effect import Effect
from tuner.regression.report import RegressionReport, Row, Side, Verdict
from tuner.wording import time_text

COLUMNS = ("verdict", "change", "95 % interval", "before", "after", "problem", "device", "config")


def print_regressions(report: RegressionReport, every: bool) -> None:
    """The two points, a row a winner, and what holds for all."""
    say(f"before  {report.before}")
    say(f"after   {report.after}")
    shown = _shown(report, every)
    right = ("change", "before", "after")
    print_table("", COLUMNS, [_cells(row, report.estimated) for row in shown], right=right)
    for row in shown:
        for line in (*((row.reason,) if row.reason else ()), *_beside(row), *row.notes):
            say(f"  {row.verdict}: {row.problem.label}: {line}")
    say(_summary(report, len(report.rows) - len(shown)))
    for line in (*_floors(report), *report.notes):
        note(line)


def markdown_text(report: RegressionReport, every: bool) -> str:
    """A comment for a pull request."""
    shown = _shown(report, every)
    lines = [f"**{_summary(report, len(report.rows) - len(shown))}**", ""]
    lines += [f"before: {report.before}  ", f"after: {report.after}", ""]
    if shown:
        lines += [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        lines += [f"| {' | '.join(_escaped(cell) for cell in _cells(row, report.estimated))} |" for row in shown]
        lines.append("")
    for row in shown:
        said = [*((row.reason,) if row.reason else ()), *_beside(row), *row.notes]
        if said:
            lines.append(f"- {row.verdict}, {_escaped(row.problem.label)}: {_escaped('; '.join(said))}")
    lines += [f"- {_escaped(line)}" for line in (*_floors(report), *report.notes)]
    return "\n".join(lines).rstrip()


def report_json(report: RegressionReport, over: float | None) -> dict[str, Any]:
    """The JSON of a report. ``worse``: how many rows are, by the limit of ``--fail-over`` (None: any regression)."""
    data: dict[str, Any] = plain(report)
    for given, row in zip(data["rows"], report.rows, strict=True):
        given["beside_plain"] = row.beside_plain
    return {
        "estimated": report.estimated,
        "counts": report.counts,
        "compared": report.compared,
        "fail_over": over,
        "worse": len(report.worse(over or 0.0)),
        **data,
    }


def change_text(change: float | None) -> str:
    """``+5.1 %``; ``-`` for None."""
    return "-" if change is None else f"{100.0 * change:+.1f} %"


def effect_text(found: Effect | None) -> str:
    """The interval, ``+4.2..+6.0 %``; empty where there is none."""
    if found is None or found.low == -1.0:
        return ""
    return f"{100.0 * found.low:+.1f}..{100.0 * found.high:+.1f} %"


def _shown(report: RegressionReport, every: bool) -> Sequence[Row]:
    return [row for row in report.rows if every or row.verdict is not Verdict.SAME]


def _cells(row: Row, estimated: bool) -> tuple[str, ...]:
    def side(found: Side | None) -> str:
        return "-" if found is None else time_text(found.median_us, estimated)

    return (
        str(row.verdict),
        change_text(row.change),
        effect_text(row.effect),
        side(row.before),
        side(row.after),
        row.problem.label,
        row.device,
        row.config,
    )


def _beside(row: Row) -> tuple[str, ...]:
    if row.plain_change is None or row.verdict not in (Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.AMBIGUOUS):
        return ()
    moved, beside = change_text(row.plain_change), change_text(row.beside_plain)
    return (f"its plain config moved by {moved}, so it by {beside} beside that",)


def _summary(report: RegressionReport, hidden: int) -> str:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.counts.items()) or "nothing"
    rest = f" ({hidden} not listed; --all lists them)" if hidden else ""
    return f"{len(report.rows)} winners: {counts}{rest}{' (estimated)' if report.estimated else ''}"


def _floors(report: RegressionReport) -> list[str]:
    basis = {"repeats": "repeated measurements", "processes": "processes of one measurement"}
    return [
        f"{device}: repeated baselines agree within {floor.half_width:.1%} ({floor.pairs} pairs of "
        f"{basis[floor.basis]}); changes below {floor.threshold:.1%} are not called"
        for device, floor in report.floors.items()
        if floor.basis in basis
    ]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
