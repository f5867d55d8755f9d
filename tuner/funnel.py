"""The way of a config from source to outcome: compiled, refused or checked, and timed or estimated.

Two funnels with one face. Both compile ahead in a pool; a ``GpuFunnel`` then hands candidates to the processes that own
GPUs, an ``EstimateFunnel`` checks them in the interpreter and ranks them by a static estimate. A funnel knows nothing
of the search and the database: a ``Ticket`` goes in, a ``TrialRecord`` comes out.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait

from tuner.compiling import CompileJob
from tuner.config import Config
from tuner.device import Device
from tuner.evaluating import Candidate, Evaluation
from tuner.operators import get
from tuner.outcomes import outcome_of
from tuner.problem import Problem
from tuner.program import Program
from tuner.resources import fits
from tuner.trial import CompileReport, Measurement, Outcome, TrialRecord
from tuner.variant import Variant
from tuner.worker.messages import Done, Reply
from tuner.worker.pool import JobQueue
from tuner.worker.process import Worker

COMPILE_LIMIT_S = 120.0
# What a new GPU process may take to make a problem's tensors, and what a candidate may take to be checked and timed.
SET_UP_LIMIT_S = 180.0
EVALUATE_LIMIT_S = 20.0
INTERPRET_LIMIT_S = 60.0


@dataclass(frozen=True)
class Ticket:
    """A config on its way, by the number of its proposal."""

    number: int
    config: Config
    variant: Variant
    candidate: Candidate


@dataclass
class _Travelling:
    ticket: Ticket
    compiled: CompileReport | None = None
    seconds: dict[str, float] = field(default_factory=dict)


class Funnel(ABC):
    """Takes tickets, gives back records. Not thread-safe; call ``poll`` often.

    ``compiled`` configs went through the compiler, of which ``found_compiled`` had all their kernels in its cache.
    """

    def __init__(self, problem: Problem, device: Device, compilers: JobQueue, seed: int) -> None:
        self.problem, self.device, self.seed = problem, device, seed
        self._compilers = compilers
        self._operator = get(problem.operator)
        self._travelling: dict[int, _Travelling] = {}
        self._finished: deque[tuple[Ticket, TrialRecord]] = deque()
        # By program: the key and record of the config that stands for all that are it, or those waiting for it.
        self._settled: dict[Program, tuple[str, TrialRecord]] = {}
        self._twins: dict[Program, list[int]] = {}
        self.best_us = math.inf
        self.compiled = self.found_compiled = 0

    @property
    def in_flight(self) -> int:
        """Tickets that went in and have not come out."""
        return len(self._travelling)

    @property
    def compile_queue(self) -> int:
        """Compilations waiting or running."""
        return self._compilers.waiting + self._compilers.running

    @property
    @abstractmethod
    def gpu_busy_seconds(self) -> float:
        """Seconds for which the GPU's process was at work."""

    @abstractmethod
    def capacity(self) -> int:
        """How many more tickets it can use now to keep everything busy."""

    def submit(self, ticket: Ticket) -> None:
        """Send ``ticket`` on its way."""
        self._travelling[ticket.number] = _Travelling(ticket)
        job = CompileJob(
            ticket.candidate.source_path,
            ticket.candidate.launch_arguments,
            self.problem,
            self.device,
            count_instructions=self.estimates,
            # In the interpreter, where an estimate's check runs, nothing is compiled.
            checked=None if self.estimates else (ticket.candidate.tiles, ticket.candidate.max_tiles),
        )
        self._compilers.submit(ticket.number, job)

    estimates = False

    def poll(self, timeout_s: float) -> list[tuple[Ticket, TrialRecord]]:
        """Move everything along; waits up to ``timeout_s`` for something to happen. Returns what has come out."""
        busy = self.busy_workers()
        deadline = min([w.deadline for w in busy], default=math.inf)
        if not self._finished:
            pause = max(0.0, min(timeout_s, deadline - time.monotonic()))
            if busy:
                wait(busy, pause)  # type: ignore[arg-type]
            elif timeout_s:
                time.sleep(min(pause, 0.01))
        for number, reply in self._compilers.poll():
            self._compiled(number, reply)
        self._advance()
        finished = list(self._finished)
        self._finished.clear()
        return finished

    def busy_workers(self) -> list[Worker]:
        """The workers whose answers move something along."""
        return [*self._compilers.busy_workers(), *self._busy_workers()]

    def abandon(self) -> list[Ticket]:
        """Give up what is still on its way; returns those tickets. The GPU's process is idle afterwards."""
        self._compilers.abandon()
        tickets = [t.ticket for t in self._travelling.values()]
        self._travelling.clear()
        self._twins.clear()
        self._abandon()
        return tickets

    @abstractmethod
    def _busy_workers(self) -> list[Worker]: ...

    @abstractmethod
    def _advance(self) -> None: ...

    @abstractmethod
    def _compiled_well(self, number: int, report: CompileReport) -> None: ...

    @abstractmethod
    def _abandon(self) -> None: ...

    def _compiled(self, number: int, reply: Reply) -> None:
        if number not in self._travelling:
            return
        travelling = self._travelling[number]
        if not isinstance(reply, Done):
            outcome, reason = outcome_of(reply, "compile")
            self._finish(number, outcome, reason)
            return
        report: CompileReport = reply.value
        travelling.compiled = report
        travelling.seconds["compile"] = report.seconds
        self.compiled += 1
        self.found_compiled += report.compilations == 0
        program = Program(report.binary_hash, travelling.ticket.candidate.promise)
        refusals = [why for why in (fits(kernel, self.device) for kernel in report.kernels) if why]
        if refusals:
            self._finish(number, Outcome.OUT_OF_RESOURCES, refusals[0])
        elif program in self._settled:
            self._finish_as_twin(number, *self._settled[program])
        elif program in self._twins:
            self._twins[program].append(number)
        else:
            self._twins[program] = []
            self._compiled_well(number, report)

    def know(self, program: Program, record: TrialRecord) -> None:
        """Tell it of a program that was timed before, so that no config that is the same one is timed again."""
        self._settled.setdefault(program, (record.config.key, record))

    def _finish(
        self,
        number: int,
        outcome: Outcome,
        reason: str = "",
        value_us: float | None = None,
        evaluation: Evaluation | None = None,
        measurements: tuple[Measurement, ...] = (),
    ) -> None:
        travelling = self._travelling.pop(number)
        if evaluation is not None:
            travelling.seconds.update(evaluation.seconds)
        promise = travelling.ticket.candidate.promise
        record = TrialRecord(
            config=travelling.ticket.config,
            variant_hash=travelling.ticket.variant.hash,
            outcome=outcome,
            reason=reason,
            value_us=value_us,
            compile_report=travelling.compiled,
            check_report=replace(evaluation.check, promise=promise) if evaluation else None,
            measurements=measurements,
            seed=self.seed,
            seconds=travelling.seconds,
        )
        self._finished.append((travelling.ticket, record))
        if value_us is not None:
            self.best_us = min(self.best_us, value_us)
        if travelling.compiled is not None:
            program = Program(travelling.compiled.binary_hash, promise)
            key = travelling.ticket.config.key
            waiting = self._twins.pop(program, [])
            # What a crash or a time-out says may not hold for a twin; what a check or a timing says does.
            if outcome in (Outcome.TIMED, Outcome.PRUNED, Outcome.WRONG):
                self._settled[program] = (key, record)
                for twin in waiting:
                    self._finish_as_twin(twin, key, record)
            else:
                for twin in waiting:
                    compiled = self._travelling[twin].compiled
                    assert compiled is not None
                    if program in self._twins:
                        self._twins[program].append(twin)
                    else:
                        self._twins[program] = []
                        self._compiled_well(twin, compiled)

    def _finish_as_twin(self, number: int, key: str, record: TrialRecord) -> None:
        travelling = self._travelling.pop(number)
        twin = TrialRecord(
            config=travelling.ticket.config,
            variant_hash=travelling.ticket.variant.hash,
            outcome=record.outcome,
            reason=record.reason or f"compiles to the same binary as {record.config.label}",
            value_us=record.value_us,
            compile_report=travelling.compiled,
            check_report=record.check_report,
            same_as=key,
            seed=self.seed,
            seconds=travelling.seconds,
        )
        self._finished.append((travelling.ticket, twin))
