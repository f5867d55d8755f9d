"""One config, or one file of the user's own, checked alone: what was checked, the figures, and the likely cause."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.errors import KernelFailedError, UsageError
from tuner.evaluating import Candidate, EvaluateJob, InterpretJob
from tuner.explaining import ExplainJob
from tuner.funnel import EVALUATE_LIMIT_S, INTERPRET_LIMIT_S, SET_UP_LIMIT_S
from tuner.machine import Machine
from tuner.outcomes import outcome_of
from tuner.own_kernel import read_own_kernel
from tuner.problem import Problem
from tuner.toolchain import triton_version as installed_triton
from tuner.trial import CheckReport
from tuner.worker.messages import Done, Reply
from tuner.workspace import Workspace


def value_of(reply: Reply, name: str) -> Any:
    """What ``reply`` holds. Raises ``KernelFailedError`` where it is a failure, which then is that of ``name``."""
    if isinstance(reply, Done):
        return reply.value
    outcome, reason = outcome_of(reply, "run")
    raise KernelFailedError(f"{name}: {outcome}: {reason}")


def check_candidate(
    machine: Machine, problem: Problem, candidate: Candidate, subject: str, seed: int, *, name: str
) -> CheckReport:
    """The check of ``candidate`` on ``machine``, with the likely cause where it fails.

    Raises ``KernelFailedError``, which begins with ``name``, where it cannot be run at all.
    """
    if machine.measures:
        worker, limit_s = machine.gpu, SET_UP_LIMIT_S + EVALUATE_LIMIT_S
        reply = worker.run(EvaluateJob(problem, machine.device, candidate, seed, measure=False), limit_s)
    else:
        machine.gpu.kill()
        worker, limit_s = machine.interpreter(), INTERPRET_LIMIT_S
        reply = worker.run(InterpretJob(problem, candidate, seed), limit_s)
    report: CheckReport = replace(value_of(reply, name).check, subject=subject)
    if report.passed:
        return report
    explained = worker.run(ExplainJob(problem, candidate, report.families[-1], seed, machine.measures), limit_s)
    return replace(report, cause=explained.value) if isinstance(explained, Done) else report


def check_file(
    problem: Problem,
    file: str | Path | None,
    space: str | Path | None = None,
    config: str | None = None,
    tiles: str | None = None,
    precision: str | None = None,
    *,
    target: str | None = None,
    gpu: bool | None = None,
    seed: int = 0,
) -> CheckReport:
    """Check a kernel of the user's own as a config of a search space is checked (``tuner.api.check``).

    ``config``, ``tiles`` and ``precision`` go before the literals ``CONFIG``, ``TILES`` and ``PRECISION`` of the file.

    Raises:
        UsageError: the file cannot be read, does not fit the operator, or is not given alone.
        KernelFailedError: it cannot be compiled or run at all.
    """
    if file is None:
        raise UsageError("tiles and precision go with a file; a search space says them itself")
    if space is not None:
        raise UsageError("give a file or a search space, not both")
    path = Path(file)
    candidate, guessed = read_own_kernel(path).candidate(problem, config or "", tiles or "", precision or "")
    installed_triton()  # MissingError, with what to do, before anything is started
    arguments = ",".join(f"{name}={value}" for name, value in candidate.launch_arguments.items())
    subject = f"{path}{f' with {arguments}' if arguments else ''}{f'; taken: {guessed}' if guessed else ''}"

    with Machine(Workspace(), target=target, gpu=gpu, workers=1) as machine:
        return check_candidate(machine, problem, candidate, subject, seed, name=str(path))
