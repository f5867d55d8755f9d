"""Runs one stored measurement again, from its stored source, and says whether it holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tuner.config import Config
from tuner.device import ESTIMATED
from tuner.errors import MissingError, UsageError
from tuner.evaluating import Candidate, RoundsJob
from tuner.finals import FINAL_PROCESSES, FINAL_ROUNDS, ROUNDS_LIMIT_S, Rounds
from tuner.known import same_or_none
from tuner.machine import Machine
from tuner.outcomes import outcome_of
from tuner.problem import Problem
from tuner.regression.judging import Evidence, compared, judged
from tuner.regression.noise import NoiseFloor, noise_floors
from tuner.regression.report import Row, Side, Verdict
from tuner.space import BoundSpace, Space
from tuner.store.history_records import Samples
from tuner.store.records import StoredMeasurement, StoredTrial
from tuner.store.store import Store
from tuner.template import read_template
from tuner.tickets import TicketOffice
from tuner.trial import CheckReport, Measurement
from tuner.variant import Variant
from tuner.worker.messages import Done

STAGE = "reproduce"
_THEN, _NOW = 0, 1


@dataclass(frozen=True)
class Recipe:
    """A stored measurement with everything that running it again needs.

    ``origin``: the database that its source was merged from, None where it was rendered for this one.
    """

    stored: StoredMeasurement
    trial: StoredTrial
    problem: Problem
    device: str
    stack: str
    variant: Variant
    origin: str | None = None


@dataclass(frozen=True)
class Reproduction:
    """What running it again says. ``row`` has the verdict, both medians and the effect; ``floor`` the device's noise.

    ``holds``: the whole interval of the effect is within the limit. ``trusted``: the stored source is not what this
    installation's templates render, and was run because the caller trusts it. Nothing is stored.
    """

    measurement: int
    row: Row
    floor: NoiseFloor
    checks: tuple[CheckReport, ...]
    measured: Measurement | None
    trusted: bool

    @property
    def holds(self) -> bool:
        """Whether the stored measurement holds."""
        return self.row.verdict is Verdict.SAME


def recipe(store: Store, measurement_id: int) -> Recipe:
    """What is stored of a measurement. Raises ``UsageError`` where there is none, or it is an estimate."""
    trial_id = store.history.trial_of(measurement_id)
    if trial_id is None:
        raise UsageError(
            f"there is no measurement {measurement_id} in {store.label}; `tuner query measurements` lists them"
        )
    trial, known = store.trial(trial_id), store.history.catalogue()
    stack = known.stacks[trial.stack_key]
    if stack.mode == ESTIMATED:
        raise UsageError(
            f"measurement {measurement_id} is an estimate: nothing was timed, so there is nothing to reproduce; "
            "`tuner tune` on a GPU measures"
        )
    stored = next(m for m in trial.measurements if m.id == measurement_id)
    device = known.devices[trial.device_key].name
    problem = known.problems[trial.problem_key]
    variant, origin = store.variant(trial.variant_hash), store.variant_origin(trial.variant_hash)
    return Recipe(stored, trial, problem, device, stack.label, variant, origin)


def reproduce(
    given: Recipe, store: Store, machine: Machine, space: Space, *, trust_source: bool, seed: int
) -> Reproduction:
    """Checks and measures ``given`` again on ``machine``, in fresh processes.

    Raises ``UsageError`` where this is another device, where nothing says how to check the config, or where the stored
    source is not what this installation renders and is not trusted; ``MissingError`` where its process ends.
    """
    if machine.device.key != given.trial.device_key:
        raise UsageError(
            f"measurement {given.stored.id} was taken on {given.device}, and this machine has {machine.device.name}"
        )
    bound = space.bind(given.problem, machine.device)
    candidate, trusted = _candidate(given, bound, machine, trust_source)
    rounds, checks = _measured(given, candidate, machine, seed)
    floor = noise_floors(store.history.repeats(machine.stack.mode), {})
    row = _row(given, machine)
    failed = next((check for check in checks if not check.passed), None)
    measurement = rounds.measurement(candidate.key, STAGE) if candidate.key in rounds.samples else None
    here = floor.get(given.trial.device_key, NoiseFloor(0.0, 0, "none"))
    if failed is not None or measurement is None:
        reason = failed.reason if failed is not None else "it was not measured"
        row = replace(row, verdict=Verdict.WRONG, reason=reason)
    else:
        row = _compared(row, given, measurement, here, machine)
    return Reproduction(given.stored.id, row, here, tuple(checks), measurement, trusted)


def _candidate(given: Recipe, bound: BoundSpace, machine: Machine, trust_source: bool) -> tuple[Candidate, bool]:
    """The stored source as the workers take it; True where it is not what this installation renders."""
    config = same_or_none(bound, given.trial.config)
    office = TicketOffice(bound, machine.workspace, machine.stack.triton)
    if config is not None and office.variant(config).hash == given.variant.hash:
        return office.candidate(config), False
    if not trust_source:
        where = f"it was merged from {given.origin}" if given.origin else "it was edited or made elsewhere"
        raise UsageError(
            f"the stored source {given.variant.hash[:12]} is not what this installation renders for "
            f"{given.trial.config.label}: {where}, and running it runs its code: read it "
            "(table tuner_variant, column source), and say --trust-source"
        )
    stored = given.trial.config
    if stored.template not in bound.templates:
        raise UsageError(
            f"no template {stored.template!r} is in the search space for {given.problem.label}, so nothing says how "
            "its result is to be checked; name the search space with --space"
        )
    return _stored_candidate(given, stored, bound, machine), True


def _stored_candidate(given: Recipe, config: Config, bound: BoundSpace, machine: Machine) -> Candidate:
    variant = given.variant
    path = Path(f"{variant.template}.py")
    template = read_template(variant.operator, variant.template, path, variant.source)
    launch = dict(config.launch)
    return Candidate(
        key=config.key,
        source_path=str(machine.workspace.source_path(variant)),
        launch_arguments={name: launch[name] for name in template.launch_parameters if name in launch},
        tiles=bound.tiles(config),
        max_tiles=bound.max_tiles(config),
        profile=bound.precision(config),
    )


def _measured(given: Recipe, candidate: Candidate, machine: Machine, seed: int) -> tuple[Rounds, list[CheckReport]]:
    rounds, checks = Rounds(), []
    machine.gpu.kill()
    for process in range(FINAL_PROCESSES):
        worker = machine.fresh_worker(f"reproduce-{process}")
        job = RoundsJob(
            given.problem, machine.device, (candidate,), 0, FINAL_ROUNDS, seed + 1 + process, check_first=True
        )
        reply = worker.run(job, ROUNDS_LIMIT_S)
        worker.kill()
        if not isinstance(reply, Done):
            outcome, reason = outcome_of(reply, "run")
            raise MissingError(f"measurement {given.stored.id} cannot be run again: {outcome}: {reason}")
        rounds.add(reply.value)
        checks += reply.value.checks.values()
    return rounds, checks


def _compared(row: Row, given: Recipe, measurement: Measurement, floor: NoiseFloor, machine: Machine) -> Row:
    old = given.stored.measurement
    if old.protocol != measurement.protocol:
        reason = f"timed by another protocol ({old.protocol}, now {measurement.protocol})"
        return replace(row, verdict=Verdict.AMBIGUOUS, reason=reason)
    before, after = Evidence.of({_THEN: _samples(old)}), Evidence.of({_NOW: _samples(measurement)})
    then = _side(given, given.stack, before, old, (given.stored.id,))
    now = _side(given, machine.stack.label, after, measurement, ())
    pending = compared(replace(row, before=then, after=now), before, after)
    (found,) = judged([pending], {row.device_key: floor})
    return found


def _row(given: Recipe, machine: Machine) -> Row:
    notes = []
    if machine.stack.key != given.trial.stack_key:
        notes.append(f"the software is another: {given.stack} then, {machine.stack.label} now")
    return Row(
        verdict=Verdict.AMBIGUOUS,
        problem=given.problem,
        device_key=given.trial.device_key,
        device=given.device,
        config=given.trial.config.label,
        config_key=given.trial.config.key,
        before=None,
        after=None,
        notes=tuple(notes),
    )


def _side(given: Recipe, stack: str, evidence: Evidence, measurement: Measurement, ids: tuple[int, ...]) -> Side:
    return Side(
        trial_id=given.trial.id,
        stack=stack,
        variant_hash=given.variant.hash,
        median_us=evidence.median_us,
        blocks=len(evidence.time),
        protocol=measurement.protocol,
        measurements=ids,
        conditions=evidence.conditions,
    )


def _samples(measurement: Measurement) -> Samples:
    count, states = len(measurement.samples_us), measurement.states
    states = states * count if len(states) == 1 else states if len(states) == count else ()
    return Samples(
        us=measurement.samples_us,
        rounds=measurement.rounds,
        processes=measurement.process,
        sm_clocks=tuple(float(state.sm_clock_mhz) for state in states),
        memory_clocks=tuple(float(state.memory_clock_mhz) for state in states),
        throttles=tuple(state.throttle_reasons for state in states),
    )
