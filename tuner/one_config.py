"""One config alone: checked, or checked and then measured beside the plain config. Nothing is stored."""

from __future__ import annotations

from pathlib import Path

from tuner.config import Config
from tuner.errors import ConfigError
from tuner.evaluating import RoundsJob, entry_names
from tuner.finals import Rounds
from tuner.machine import Machine
from tuner.one_check import check_candidate, value_of
from tuner.problem import Problem
from tuner.results import TimeResult
from tuner.space import BoundSpace, Space
from tuner.tickets import TicketOffice
from tuner.trial import CheckReport

_TIME_ROUNDS = 30
_TIME_LIMIT_S = 180.0


def check_config(machine: Machine, space: Space, problem: Problem, config: str | None, seed: int) -> CheckReport:
    """The check of the config that ``config`` names (None: the first plain one), as ``tuner.api.check``."""
    bound, chosen, office = _one(machine, space, problem, config)
    candidate = office.candidate(chosen)
    subject = f"{chosen.label} (source {Path(candidate.source_path).stem})"
    return check_candidate(machine, problem, candidate, subject, seed, name=_name(bound, chosen))


def time_config(machine: Machine, space: Space, problem: Problem, config: str | None, seed: int) -> TimeResult:
    """The config (None: the first plain one) beside the plain one in interleaved rounds, as ``tuner.api.time``."""
    bound, picked, office = _one(machine, space, problem, config)
    plain = bound.plain()[0]
    configs = [picked] if plain.key == picked.key else [picked, plain]
    candidates = tuple(office.candidate(c) for c in configs)
    job = RoundsJob(problem, machine.device, candidates, 0, _TIME_ROUNDS, seed, check_first=True)
    result = value_of(machine.gpu.run(job, _TIME_LIMIT_S), _name(bound, picked))
    rounds = Rounds()
    rounds.add(result)
    measured = {name: rounds.measurement(name, "time") for name in entry_names(candidates) if name in rounds.samples}
    return TimeResult(
        problem=problem,
        config=picked,
        device=machine.device,
        stack=machine.stack,
        check=result.checks[picked.key],
        measurement=measured.get(picked.key),
        anchor=measured.get(plain.key),
    )


def refuse_empty(bound: BoundSpace) -> None:
    """Raises ``ConfigError`` where no template applies."""
    if not bound.templates:
        reasons = "; ".join(f"{name}: {why}" for name, why in bound.refused.items())
        raise ConfigError(f"no template applies to {bound.problem.label} on {bound.device.name}: {reasons}")


def _one(
    machine: Machine, space: Space, problem: Problem, config: str | None
) -> tuple[BoundSpace, Config, TicketOffice]:
    bound = space.bind(problem, machine.device, gpu=machine.measures, triton_version=machine.stack.triton)
    refuse_empty(bound)
    return bound, bound.parse(config or ""), TicketOffice(bound, machine.workspace, machine.stack.triton)


def _name(bound: BoundSpace, config: Config) -> str:
    return f"{config.label} on {bound.device.name}"
