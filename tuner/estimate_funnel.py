"""The way of a config without a GPU: compiled for the target, checked in the interpreter, ranked by the estimate."""

from __future__ import annotations

import math

from tuner.device import Device
from tuner.estimating import Figures, estimate
from tuner.evaluating import Evaluation, InterpretJob
from tuner.funnel import Funnel
from tuner.outcomes import outcome_of
from tuner.problem import Problem
from tuner.trial import CompileReport, Outcome
from tuner.worker.messages import Done, Reply
from tuner.worker.pool import JobQueue
from tuner.worker.process import Worker


class EstimateFunnel(Funnel):
    """Without a GPU: compiles for the target, checks in the interpreter, and ranks by the static estimate."""

    estimates = True

    def __init__(
        self, problem: Problem, device: Device, compilers: JobQueue, seed: int, interpreters: JobQueue
    ) -> None:
        super().__init__(problem, device, compilers, seed)
        self._interpreters = interpreters

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
        figures = Figures(
            costs.flops(problem), costs.bytes_moved(problem), costs.exponentials(problem), costs.uneven(problem)
        )
        measurement = estimate(figures, compiled, self.device, programs).measurement()
        self._finish(number, Outcome.TIMED, "estimated", measurement.median_us, evaluation, (measurement,))

    def _abandon(self) -> None:
        self._interpreters.abandon()
