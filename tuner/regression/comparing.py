"""Compares the winners of one point with what became of the same configs at another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.device import ESTIMATED, MEASURED
from tuner.errors import StoreError, UsageError
from tuner.own_operators.files import bare_name
from tuner.regression.effect import LEAST_THRESHOLD
from tuner.regression.fairness import Conditions, Fairness
from tuner.regression.judging import Evidence, compared, judged
from tuner.regression.noise import NoiseFloor, noise_floors
from tuner.regression.points import Point
from tuner.regression.reading import BROKEN, Found, Place, PointReader, Source
from tuner.regression.report import RegressionReport, Row, Side, Verdict
from tuner.regression.sides import Sides, choose_sides
from tuner.store.history import History
from tuner.store.history_records import Catalogue, Samples, WinnerAt
from tuner.wording import remeasure_command


def compare(
    old: History,
    new: History,
    before: Point,
    after: Point,
    *,
    operator: str | None = None,
    device: str | None = None,
    estimated: bool = False,
) -> RegressionReport:
    """The report on the winners at ``before``, stored in ``old``, and the same configs at ``after``, stored in ``new``.

    ``operator`` and ``device`` (part of a name) narrow it. Raises ``UsageError`` where there is nothing to compare.
    """
    mode = ESTIMATED if estimated else MEASURED
    known = _joined(old.catalogue(), new.catalogue())
    sides = choose_sides(before, after, old.stack_uses(mode), new.stack_uses(mode), known.devices)
    then = PointReader(old, sides.before, sides.stacks_before, "--before")
    now = PointReader(new, sides.after, sides.stacks_after, "--after")
    every = old.winners(estimated=estimated)
    _refuse_unknown(every, known)
    winners = [w for w in then.winners(every).values() if _wanted(w, known, operator, device)]
    if not winners:
        raise UsageError(_nothing(sides, operator, device, estimated))
    tuned_again = now.winners(every if new is old else new.winners(estimated=estimated))

    pairs = _pairs(then, now, winners, same_database=new is old)
    pending, evidence = _rows(pairs, then, now, known, tuned_again, estimated=estimated)
    floors: dict[str, NoiseFloor] = {}
    if not estimated:
        repeats = [*old.repeats(mode), *(new.repeats(mode) if new is not old else [])]
        singles = {key: [e.time for e in found] for key, found in evidence.items()}
        floors = noise_floors(repeats, singles)
    rows = sorted(judged(pending, floors), key=lambda row: row.rank)
    used_devices = {row.device_key for row in rows}
    names = _device_names(used_devices, known)
    return RegressionReport(
        before=_described(sides.before, sides.stacks_before, known),
        after=_described(sides.after, sides.stacks_after, known),
        rows=tuple(replace(row, device=names[row.device_key]) for row in rows),
        floors={names[key]: floor for key, floor in floors.items() if key in used_devices},
        notes=(*sides.left_out, *_shared_notes(rows, floors, names)),
        estimated=estimated,
    )


@dataclass(frozen=True)
class _Pair:
    """A winner, its config at both points, and by how much its plain config moved."""

    winner: WinnerAt
    before: Found | None
    after: Found | None
    plain_change: float | None


def _pairs(then: PointReader, now: PointReader, winners: Sequence[WinnerAt], *, same_database: bool) -> list[_Pair]:
    """What is stored of each winner's config, and its plain config, at both points."""
    configs = {(w.problem_key, w.device_key, w.config.key): w for w in winners}
    plains = {(w.problem_key, w.device_key, w.plain_key): w for w in winners if w.plain_key}
    # The winner is one source on one stack, and its plain config was measured beside it.
    meant = {place: Source(w.stack_key) for place, w in plains.items()}
    meant |= {place: Source(w.stack_key, w.variant_hash) for place, w in configs.items()}
    before = then.find([*configs, *plains], frozenset(), meant)
    used = [before[place] for place in configs if place in before]
    # What was measured before is not what was measured since.
    besides = frozenset(number for found in used for number in found.measurement_ids) if same_database else frozenset()
    after = now.find([*configs, *plains], besides)
    return [
        _Pair(w, before.get(place), after.get(place), _plain_change(before, after, place, w.plain_key))
        for place, w in configs.items()
    ]


def _rows(
    pairs: Sequence[_Pair],
    then: PointReader,
    now: PointReader,
    known: Catalogue,
    tuned_again: Mapping[tuple[str, str], WinnerAt],
    *,
    estimated: bool,
) -> tuple[list[tuple[Row, Fairness | None]], dict[str, list[Evidence]]]:
    """A row a pair, with what makes it unfair where its times are still to be judged; and the evidence by device."""
    samples_then = then.history.samples(i for p in pairs if p.before for i in p.before.measurement_ids)
    samples_now = now.history.samples(i for p in pairs if p.after for i in p.after.measurement_ids)
    rows: list[tuple[Row, Fairness | None]] = []
    evidence: dict[str, list[Evidence]] = {}
    for pair in pairs:
        row = _bare(pair, known, tuned_again.get((pair.winner.problem_key, pair.winner.device_key)))
        if row.verdict is not Verdict.AMBIGUOUS or pair.before is None or pair.after is None:
            rows.append((row, None))
        elif estimated:
            rows.append((_estimate(row, pair.before, pair.after, known), None))
        else:
            before, after = _evidence(pair.before, samples_then), _evidence(pair.after, samples_now)
            evidence.setdefault(pair.winner.device_key, []).extend((before, after))
            row = replace(
                row,
                before=_side(pair.before, before, known),
                after=_side(pair.after, after, known),
                plain_change=pair.plain_change,
                first_look=not (pair.before.confirmed and pair.after.confirmed),
            )
            rows.append(compared(row, before, after))
    return rows, evidence


def _bare(pair: _Pair, known: Catalogue, tuned_again: WinnerAt | None) -> Row:
    """The row without times; ``AMBIGUOUS`` where times have to decide."""
    winner, after = pair.winner, pair.after
    row = Row(
        verdict=Verdict.AMBIGUOUS,
        problem=known.problems[winner.problem_key],
        device_key=winner.device_key,
        device=known.devices[winner.device_key].name,
        config=winner.config.label,
        config_key=winner.config.key,
        before=_side(pair.before, None, known) if pair.before is not None and pair.before.heads else None,
        after=None,
    )
    notes = []
    if after is not None and after.trial.variant_hash != winner.variant_hash:
        notes.append("its source changed between the points")
    if tuned_again is not None and tuned_again.config.key != winner.config.key:
        notes.append(f"tuned again there, the winner is {tuned_again.config.label} ({tuned_again.median_us:.2f} us)")
    row = replace(row, notes=tuple(notes))
    if after is not None and after.trial.outcome in BROKEN:
        return replace(row, verdict=BROKEN[after.trial.outcome], reason=after.trial.reason)
    if after is None:
        estimated = known.stacks[winner.stack_key].mode == ESTIMATED
        reason = f"not {'estimated' if estimated else 'measured'} there; run `{remeasure_command(estimated)}`"
        return replace(row, verdict=Verdict.MISSING, reason=reason)
    if pair.before is None or not pair.before.heads:
        return replace(row, verdict=Verdict.MISSING, reason="its samples at the point before are not stored")
    old, new = pair.before.heads[-1].protocol, after.heads[-1].protocol
    if old != new:
        return replace(row, verdict=Verdict.MISSING, reason=f"timed by another protocol ({old}, then {new})")
    return row


def _estimate(row: Row, before: Found, after: Found, known: Catalogue) -> Row:
    """Estimates have no spread: they agree, or only a GPU can tell."""
    old, new = before.heads[-1].median_us, after.heads[-1].median_us
    change = new / old - 1.0
    same = 1.0 / (1.0 + LEAST_THRESHOLD) <= new / old <= 1.0 + LEAST_THRESHOLD
    return replace(
        row,
        verdict=Verdict.SAME if same else Verdict.AMBIGUOUS,
        before=_side(before, None, known),
        after=_side(after, None, known),
        change=change,
        threshold=LEAST_THRESHOLD,
        reason="" if same else "the estimates differ; only a GPU can tell",
    )


def _side(found: Found, evidence: Evidence | None, known: Catalogue) -> Side:
    return Side(
        trial_id=found.trial.id,
        stack=known.stacks[found.trial.stack_key].label,
        variant_hash=found.trial.variant_hash,
        median_us=evidence.median_us if evidence else found.heads[-1].median_us,
        blocks=len(evidence.time) if evidence else sum(head.sample_count for head in found.heads),
        protocol=found.heads[-1].protocol,
        measurements=found.measurement_ids,
        conditions=evidence.conditions if evidence else Conditions.of(()),
    )


def _evidence(found: Found, samples: Mapping[int, Samples]) -> Evidence:
    return Evidence.of({number: samples[number] for number in found.measurement_ids})


def _plain_change(
    before: Mapping[Place, Found], after: Mapping[Place, Found], config: Place, plain_key: str
) -> float | None:
    """By how much the plain config moved, where it was measured on the same stacks as the winner's config."""
    plain = (*config[:2], plain_key)
    if plain == config or not all(place in side for place in (plain, config) for side in (before, after)):
        return None
    if any(side[plain].trial.stack_key != side[config].trial.stack_key for side in (before, after)):
        return None
    if not before[plain].heads or not after[plain].heads:
        return None
    old, new = before[plain].heads[-1], after[plain].heads[-1]
    return new.median_us / old.median_us - 1.0 if old.protocol == new.protocol else None


def _device_names(keys: Collection[str], known: Catalogue) -> dict[str, str]:
    """Devices by key, for people: two of one name have other limits (a part of a card, say), and show their key."""
    counts = Counter(known.devices[key].name for key in keys)
    names = {key: known.devices[key].name for key in keys}
    return {key: name if counts[name] == 1 else f"{name} ({key[:8]})" for key, name in names.items()}


def _shared_notes(rows: Sequence[Row], floors: Mapping[str, NoiseFloor], names: Mapping[str, str]) -> list[str]:
    notes = []
    for key, name in sorted(names.items()):
        moved = sorted(row.plain_change for row in rows if row.device_key == key and row.plain_change is not None)
        if len(moved) > 1 and abs(moved[len(moved) // 2]) > LEAST_THRESHOLD:
            notes.append(
                f"{name}: the plain configs moved too, by {moved[len(moved) // 2]:+.1%} in the median of {len(moved)}: "
                "the card or the compiler changed, not these configs alone"
            )
        if key in floors and floors[key].basis == "none":
            limit = f"{floors[key].threshold:.0%}"
            notes.append(
                f"{name}: too few repeated measurements to know its noise; {limit} is taken as the limit "
                "(`tuner remeasure` repeats)"
            )
    return notes


def _described(point: Point, stacks: Mapping[str, tuple[str, ...]], known: Catalogue) -> str:
    used = dict.fromkeys(known.stacks[key].label for keys in stacks.values() for key in keys)
    shown = "; ".join(used) if len(used) <= 2 else f"{len(used)} software stacks"
    rest = replace(point, stack="", triton="", torch="", driver="").label
    return f"{shown} ({rest})" if rest else shown


def _joined(old: Catalogue, new: Catalogue) -> Catalogue:
    return Catalogue({**old.problems, **new.problems}, {**old.devices, **new.devices}, {**old.stacks, **new.stacks})


def _refuse_unknown(winners: Sequence[WinnerAt], known: Catalogue) -> None:
    """Raises ``StoreError`` where a winner names a problem, device or stack that is not stored."""
    for winner in winners:
        for what, key, there in (
            ("problem", winner.problem_key, known.problems),
            ("device", winner.device_key, known.devices),
            ("software stack", winner.stack_key, known.stacks),
        ):
            if key not in there:
                raise StoreError(
                    f"winner {winner.id} is of the {what} {key!r}, which is not stored: the database was damaged or "
                    "edited; `tuner db check` says more"
                )


def _wanted(winner: WinnerAt, known: Catalogue, operator: str | None, device: str | None) -> bool:
    stored = known.problems[winner.problem_key].operator
    if operator not in (None, stored, bare_name(stored)):
        return False
    return device is None or device.lower() in known.devices[winner.device_key].name.lower()


def _nothing(sides: Sides, operator: str | None, device: str | None, estimated: bool) -> str:
    words = ["no", "estimated" if estimated else "measured", "winner"]
    words += ["of", operator] if operator else []
    words += ["on", device] if device else []
    label = sides.before.label
    return f"{' '.join(words)} is stored at the point before{f' ({label})' if label else ''}; run `tuner tune` there"
