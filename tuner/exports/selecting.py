"""Chooses the winners of a table: per problem and device the one that ``tuner best`` gives, if it may be exported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tuner.device import Device
from tuner.errors import ProblemError, UsageError
from tuner.exports.entry import Entry, LeftOut, Selection, Times
from tuner.exports.reading import fastest_of_templates, search_space, times
from tuner.exports.rules import read_rules
from tuner.operators import get
from tuner.problem import Problem
from tuner.store.records import StoredWinner, StudySummary
from tuner.store.store import Store
from tuner.template import read_template
from tuner.trial import CheckReport


@dataclass(frozen=True)
class Wanted:
    """Which winners: of one operator, of devices whose name contains ``device``, stored since a moment.

    ``estimated`` takes estimated winners too, ``old_checks`` those whose check lacks what the check does now.
    """

    operator: str | None = None
    device: str | None = None
    since: datetime | None = None
    estimated: bool = False
    old_checks: bool = False


def moment(text: str) -> datetime:
    """``2026-11-30`` or ``2026-11-30T12:00`` (UTC where no zone is given). Raises ``UsageError``."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--since: cannot read {text!r}; write a date such as 2026-11-30") from None
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def select(store: Store, wanted: Wanted, *, others: bool = False) -> Selection:
    """The winners that may be exported, with everything that a table needs of them.

    ``others``: with the fastest of each other template beside each, as far as those may be exported.

    Raises ``UsageError`` where none is left, with the reasons.
    """
    if wanted.operator is not None:
        get(wanted.operator)
    entries: list[Entry] = []
    left_out: list[LeftOut] = []
    for winner in winners(store, wanted):
        entry, why = _entry(store, winner, wanted)
        if entry is not None:
            beside = fastest_of_templates(store, winner) if others else []
            # Those beside it are of its problem, device and stack, and so are the times that were read for it.
            found = (_entry(store, one, wanted, entry.times)[0] for one in beside)
            entries.append(replace(entry, others=tuple(one for one in found if one is not None)))
        else:
            left_out.append(LeftOut(f"{winner.problem.label} on {winner.device.name}", why))
    if not entries:
        raise UsageError(_nothing(store, wanted, left_out))
    entries.sort(key=_order)
    devices: dict[str, Device] = {e.device.key: e.device for e in entries}
    return Selection(tuple(entries), tuple(left_out), tuple(devices.values()))


def winners(store: Store, wanted: Wanted) -> Iterator[StoredWinner]:
    """The best winner of each problem on each device; an estimated one only where no measured one is."""
    places: dict[tuple[Problem, str], None] = {}
    for study in store.studies(operator=wanted.operator, device=wanted.device):
        places[study.problem, study.device_name] = None
    for problem, device_name in places:
        winner = store.best(problem, device_name, estimated=True)  # a measured one, where there is one
        if winner is not None and (wanted.since is None or winner.created_at >= wanted.since):
            yield winner


def _entry(store: Store, winner: StoredWinner, wanted: Wanted, known: Times | None = None) -> tuple[Entry | None, str]:
    """The winner with what a table needs of it, or why it is left out. ``known``: its times, where they were read."""
    if winner.record.estimated and not wanted.estimated:
        return None, "it is estimated, not measured; take it with --estimated"
    try:
        get(winner.problem.operator)
    except ProblemError as error:  # of a file that is not named here, or is another one now
        return None, f"{error}, with --operator"
    trial = store.trial(winner.record.trial_id)
    check = trial.check_report
    if check is None or not check.passed:
        return None, "no passed check is stored with it; tune it again"
    if (missing := missing_families(winner.problem, check)) and not wanted.old_checks:
        names = ", ".join(missing)
        return None, f"its check is older than the rules: it lacks {names}; tune it again, or take it with --old-checks"
    digest, text = search_space(store, winner.study_id)
    variant = store.variant(winner.variant_hash)
    template = read_template(variant.operator, variant.template, Path(f"{variant.template}.py"), variant.source)
    values = winner.config.values
    return (
        Entry(
            winner=winner,
            variant=variant,
            check=check,
            arguments={name: values[name] for name in template.launch_parameters if name in values},
            rules=read_rules(text, winner.config.template),
            space_digest=digest,
            times=times(store, winner) if known is None else known,
        ),
        "",
    )


def missing_families(problem: Problem, check: CheckReport) -> tuple[str, ...]:
    """The input families that the operator's check has now and ``check`` did not run: it is older than the rules."""
    ran = {re.sub(r" \(.*\)$", "", family.family) for family in check.families}
    return tuple(name for name in get(problem.operator).families(problem) if name not in ran)


def _order(entry: Entry) -> tuple[object, ...]:
    problem = entry.problem
    options = tuple((name, str(value)) for name, value in problem.options)
    sizes = tuple(size for _, size in problem.shape)
    return entry.device.name, entry.device.key, problem.operator, problem.dtype, options, sizes


def _nothing(store: Store, wanted: Wanted, left_out: list[LeftOut]) -> str:
    if left_out:
        others = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        return f"nothing can be exported: {left_out[0].what}{others}: {left_out[0].why}"
    studies: list[StudySummary] = store.studies(operator=wanted.operator)
    if studies and wanted.device is not None and not any(_fits(s, wanted.device) for s in studies):
        known = ", ".join(sorted({s.device_name for s in studies}))
        return f"--device: no study is of {wanted.device!r}; the database has {known}"
    what = f" for {wanted.operator}" if wanted.operator else ""
    since = f" since {wanted.since:%Y-%m-%d %H:%M}" if wanted.since else ""
    return f"no winner is stored{what}{since}; run `tuner tune` first"


def _fits(study: StudySummary, device: str) -> bool:
    return device.lower() in study.device_name.lower()
