"""Jobs and values for the tests of the engine; workers import this module as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.compiling import CompileJob, counting_compilations, launch_tensors
from tuner.config import Config, Value
from tuner.loading import load_source
from tuner.machine import Machine
from tuner.operators import get
from tuner.problem import Problem
from tuner.space import BoundSpace, load_space
from tuner.tickets import TicketOffice
from tuner.trial import CompileReport
from tuner.worker.messages import WorkerState

PROBLEM = get("softmax").problem({"rows": 200, "cols": 100}, "fp32")


@dataclass(frozen=True)
class Counted:
    """``job``, and how many kernels Triton compiled for it."""

    job: CompileJob

    def __call__(self, state: WorkerState) -> tuple[CompileReport, int]:
        with counting_compilations() as compiled:
            report = self.job(state)
            return report, compiled()


@dataclass(frozen=True)
class Launched:
    """How many kernels Triton compiles where a variant is launched as a GPU's worker would, in warm-up mode."""

    source_path: str
    launch_arguments: Mapping[str, Value]
    problem: Problem

    def __call__(self, state: WorkerState) -> int:
        from triton.runtime.jit import JITFunction

        original = JITFunction.run

        def run(self, *args, grid, warmup, **kwargs):  # type: ignore[no-untyped-def]
            return original(self, *args, grid=grid, warmup=True, **kwargs)

        JITFunction.run = run
        try:
            with counting_compilations() as compiled:
                scalars = get(self.problem.operator).scalars(self.problem)
                module = load_source(Path(self.source_path))
                module.launch(**launch_tensors(self.problem), **scalars, **self.launch_arguments)
                return compiled()
        finally:
            JITFunction.run = original


def office_for(machine: Machine, space: Path, problem: Problem = PROBLEM) -> TicketOffice:
    """Makes tickets for ``space`` on the machine's device."""
    bound: BoundSpace = load_space(space).bind(problem, machine.device, gpu=False)
    return TicketOffice(bound, machine.workspace, machine.stack.triton)


def config_of(office: TicketOffice, text: str) -> Config:
    """The config that ``text`` names, the rest as in the plain one."""
    return office.bound.parse(text)


def compile_job(office: TicketOffice, text: str, machine: Machine) -> CompileJob:
    """The job that compiles the config ``text``."""
    candidate = office.candidate(config_of(office, text))
    return CompileJob(candidate.source_path, candidate.launch_arguments, office.bound.problem, machine.device)
