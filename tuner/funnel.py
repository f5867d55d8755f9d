"""The way of a config from source to outcome: compiled, refused or checked, and timed or estimated.

Two funnels with one face. Both compile ahead in a pool; ``GpuFunnel`` then hands candidates to the one process that
owns the GPU, ``EstimateFunnel`` checks them in the interpreter and ranks them by a static estimate. A funnel knows
nothing of the search and the database: a ``Ticket`` goes in, a ``TrialRecord`` comes out.
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
from tuner.errors import MissingError
from tuner.estimating import Figures, estimate
from tuner.evaluating import Candidate, EvaluateJob, Evaluation, InterpretJob, SetUpJob
from tuner.operators import get
from tuner.outcomes import outcome_of
from tuner.problem import Problem
from tuner.program import Program
from tuner.resources import fits
from tuner.trial import CompileReport, Measurement, Outcome, TrialRecord
from tuner.variant import Variant
from tuner.worker.messages import Died, Done, Reply
from tuner.worker.pool import Pool
from tuner.worker.process import Worker

COMPILE_LIMIT_S = 120.0
# What a new GPU process may take to make a problem's tensors, and what a candidate may take to be checked and timed.
SET_UP_LIMIT_S = 180.0
EVALUATE_LIMIT_S = 20.0
INTERPRET_LIMIT_S = 60.0
_SETTING_UP = -1
_MOST_FAILED_STARTS = 3
# How long work on the GPU that nobody wants any more may go on before its process is killed: a new one takes seconds.
_PATIENCE_S = 1.0


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
    """Takes tickets, gives back records. Not thread-safe; call ``poll`` often."""

    def __init__(self, problem: Problem, device: Device, compilers: Pool[int], seed: int) -> None:
        self.problem, self.device, self.seed = problem, device, seed
        self._compilers = compilers
        self._operator = get(problem.operator)
        self._travelling: dict[int, _Travelling] = {}
        self._finished: deque[tuple[Ticket, TrialRecord]] = deque()
        # By program: the key and record of the config that stands for all that are it, or those waiting for it.
        self._settled: dict[Program, tuple[str, TrialRecord]] = {}
        self._twins: dict[Program, list[int]] = {}
        self.best_us = math.inf

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
        busy = [*self._compilers.busy_workers(), *self._busy_workers()]
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


class GpuFunnel(Funnel):
    """Compiles ahead, and keeps one GPU process checking and timing."""

    def __init__(
        self,
        problem: Problem,
        device: Device,
        compilers: Pool[int],
        seed: int,
        gpu: Worker,
        typical: Candidate | None = None,
    ) -> None:
        super().__init__(problem, device, compilers, seed)
        self.gpu = gpu
        self._busy_before = gpu.busy_seconds
        self._typical = typical
        self._ready: deque[int] = deque()
        self._again: set[int] = set()
        self._on_gpu: int | None = None
        self._set_up_for = 0
        self._failed_starts = 0

    @property
    def gpu_busy_seconds(self) -> float:
        return self.gpu.busy_seconds - self._busy_before

    @property
    def idle(self) -> bool:
        """Whether the GPU has nothing to do until a compilation ends."""
        return self._on_gpu is None and not self._ready and self._is_ready

    def capacity(self) -> int:
        # Enough to keep every compiler at work and a few candidates ready for the GPU, but not so many that the sampler
        # proposes all of them without having learnt anything.
        ahead = 2 * self._compilers.size
        return max(0, min(ahead - len(self._travelling), self._compilers.size + 2 - self._compilers.waiting))

    def _busy_workers(self) -> list[Worker]:
        return [self.gpu] if self._on_gpu is not None and self.gpu.busy else []

    def _compiled_well(self, number: int, report: CompileReport) -> None:
        self._ready.append(number)

    def _advance(self) -> None:
        if self._on_gpu is not None:
            reply = self.gpu.poll()
            if reply is not None:
                number, self._on_gpu = self._on_gpu, None
                if number == _SETTING_UP:
                    self._is_set_up(reply)
                elif number in self._travelling:
                    self._evaluated(number, reply)
        if self._on_gpu is None and not self.gpu.busy and not self._is_ready:
            # A process is set up before it gets a candidate, so that a candidate's time limit is its own.
            self.gpu.send(SetUpJob(self.problem, self.device, self.seed, self._typical), SET_UP_LIMIT_S)
            self._on_gpu = _SETTING_UP
        while self._on_gpu is None and self._ready and not self.gpu.busy:
            number = self._ready.popleft()
            if number not in self._travelling:
                continue
            candidate = self._travelling[number].ticket.candidate
            job = EvaluateJob(self.problem, self.device, candidate, self.seed, self.best_us)
            self.gpu.send(job, EVALUATE_LIMIT_S)
            self._on_gpu = number

    @property
    def _is_ready(self) -> bool:
        return self.gpu.process_id != 0 and self._set_up_for == self.gpu.starts

    def _is_set_up(self, reply: Reply) -> None:
        if isinstance(reply, Done):
            self._set_up_for, self._failed_starts = self.gpu.starts, 0
            return
        self._failed_starts += 1
        if self._failed_starts >= _MOST_FAILED_STARTS:
            _, reason = outcome_of(reply, "set up the GPU")
            raise MissingError(f"the GPU cannot be used for {self.problem.label}: {reason}")

    def _evaluated(self, number: int, reply: Reply) -> None:
        if isinstance(reply, Died) and not reply.timed_out and number not in self._again:
            # Its process may have been killed from outside; one that ends a second one is to blame.
            self._again.add(number)
            self._ready.appendleft(number)
            return
        if not isinstance(reply, Done):
            outcome, reason = outcome_of(reply, "run")
            self._finish(number, outcome, reason)
            return
        evaluation: Evaluation = reply.value
        self._travelling[number].seconds["recompiled"] = float(evaluation.recompiled)
        if evaluation.measurement is None:
            self._finish(number, Outcome.WRONG, evaluation.check.reason, evaluation=evaluation)
            return
        median = evaluation.measurement.median_us
        measurements = (evaluation.measurement,)
        if evaluation.pruned:
            reason = f"{median / self.best_us:.1f} times slower than the best; cut short"
            self._finish(number, Outcome.PRUNED, reason, evaluation=evaluation, measurements=measurements)
        else:
            self._finish(number, Outcome.TIMED, "", median, evaluation, measurements)

    def _abandon(self) -> None:
        self._ready.clear()
        if self._on_gpu is not None and self.gpu.busy:
            wait([self.gpu], _PATIENCE_S)  # type: ignore[list-item]
            if self.gpu.poll() is None:
                self.gpu.kill()
        self._on_gpu = None


class EstimateFunnel(Funnel):
    """Without a GPU: compiles for the target, checks in the interpreter, and ranks by the static estimate."""

    estimates = True

    def __init__(
        self, problem: Problem, device: Device, compilers: Pool[int], seed: int, interpreters: Pool[int]
    ) -> None:
        super().__init__(problem, device, compilers, seed)
        self._interpreters = interpreters
        self._checked: dict[tuple[str, str], Evaluation] = {}

    @property
    def gpu_busy_seconds(self) -> float:
        return 0.0

    def capacity(self) -> int:
        return max(0, 2 * self._compilers.size - len(self._travelling))

    def _busy_workers(self) -> list[Worker]:
        return self._interpreters.busy_workers()

    def _compiled_well(self, number: int, report: CompileReport) -> None:
        candidate = self._travelling[number].ticket.candidate
        self._interpreters.submit(number, InterpretJob(self.problem, candidate, self.seed))

    def _advance(self) -> None:
        for number, reply in self._interpreters.poll():
            if number in self._travelling:
                self._evaluated(number, reply)

    def _evaluated(self, number: int, reply: Reply) -> None:
        if not isinstance(reply, Done):
            outcome, reason = outcome_of(reply, "run in the interpreter")
            self._finish(number, outcome, reason)
            return
        evaluation: Evaluation = reply.value
        if not evaluation.check.passed:
            self._finish(number, Outcome.WRONG, evaluation.check.reason, evaluation=evaluation)
            return
        compiled = self._travelling[number].compiled
        assert compiled is not None
        programs = math.prod(compiled.grid) if compiled.grid else 1
        costs, problem = self._operator, self.problem
        figures = Figures(costs.flops(problem), costs.bytes_moved(problem), costs.exponentials(problem))
        measurement = estimate(figures, compiled, self.device, programs).measurement()
        self._finish(number, Outcome.TIMED, "estimated", measurement.median_us, evaluation, (measurement,))

    def _abandon(self) -> None:
        self._interpreters.abandon()
