"""Studies, printed for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tuner.cli.output import plain, say
from tuner.cli.tables import print_facts, print_table
from tuner.cli.winner_view import verdict_text, winner_facts
from tuner.store.records import StoredTrial, StudyDetail, StudySummary
from tuner.wording import duration_text, gain_text, interval_text, time_text, tried_text


def print_studies(studies: Sequence[StudySummary]) -> None:
    """One row a study."""
    print_table(
        "",
        ("#", "study", "problem", "device", "state", "trials", "best", "gain"),
        [
            (
                s.id,
                s.name,
                s.problem.label,
                s.device_name,
                s.state,
                s.trials,
                time_text(s.best_us, s.estimated),
                gain_text(s.speedup),
            )
            for s in studies
        ],
        right=("#", "trials", "best", "gain"),
    )


def print_detail(detail: StudyDetail, top: int) -> None:
    """Everything about a study that fits a screen."""
    s = detail.summary
    limits = [f"{s.max_trials} trials"] if s.max_trials is not None else []
    limits += [duration_text(s.max_seconds)] if s.max_seconds is not None else []
    busy = f", GPU busy {s.gpu_busy_s / s.wall_s:.0%}" if s.gpu_busy_s and s.wall_s else ""
    size = "" if s.space_size is None else f" of {s.space_size} valid configs"
    print_facts(
        [
            ("study", f"{s.name} (#{s.id}), {s.state}"),
            ("problem", s.problem.label),
            ("device", f"{s.device_name} ({s.mode})"),
            ("stack", s.stack.label),
            ("space", f"{detail.space_name} {s.space_digest[:12]}"),
            ("sampler", f"{s.sampler}, seed {s.seed}, protocol {s.protocol}"),
            ("budget", " or ".join(limits)),
            ("trials", f"{s.trials}{size}: {tried_text(s.outcomes, s.reused, s.estimated)}"),
            ("took", f"{duration_text(s.wall_s)}{busy}"),
        ]
    )
    print_table(
        "why configs were refused",
        ("outcome", "count", "reason", "example"),
        [(r.outcome, r.count, r.reason, r.example) for r in detail.refusals],
        right=("count",),
    )
    ranked = sorted((t.trial for t in detail.trials if t.trial.value_us is not None), key=lambda t: t.value_us or 0.0)
    print_table(
        f"fastest {min(top, len(ranked))} of {len(ranked)} {'estimated' if s.estimated else 'timed'}",
        ("", "time", "95 % interval", "check", "config"),
        [
            (rank, time_text(t.value_us, s.estimated), _interval(t), _check(t), t.config.label)
            for rank, t in enumerate(ranked[:top], start=1)
        ],
        right=("", "time"),
    )
    if detail.winner is None:
        say(f"no winner: {s.verdict}" if s.verdict else "no winner yet; run the same `tuner tune` command to go on")
        return
    wanted = ("winner", "time", "verdict", "plain config", "gain")
    print_facts([(name, value) for name, value in winner_facts(detail.winner) if name in wanted])


def summary_json(summary: StudySummary) -> dict[str, Any]:
    """The JSON of a summary; ``estimated`` is said."""
    data: dict[str, Any] = plain(summary)
    data["verdict"] = verdict_text(summary.verdict, summary.estimated)
    return {"estimated": summary.estimated, **data}


def detail_json(detail: StudyDetail) -> dict[str, Any]:
    """The JSON of a study."""
    return {**plain(detail), "summary": summary_json(detail.summary), "estimated": detail.summary.estimated}


def _interval(trial: StoredTrial) -> str:
    """The interval of the latest measurement."""
    if not trial.measurements:
        return ""
    latest = trial.measurements[-1].measurement
    return interval_text(latest.low_us, latest.high_us)


def _check(trial: StoredTrial) -> str:
    return "" if trial.check_report is None else f"{trial.check_report.worst_ratio:.2f} of bound"
