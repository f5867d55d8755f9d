"""The way of a config on a GPU: compiled ahead, then checked and timed by the process that owns the card.

Several GPUs take candidates from one queue. Which of them a funnel has may change while it runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import wait

from tuner.device import Device
from tuner.errors import MissingError
from tuner.evaluating import Candidate, EvaluateJob, Evaluation, SetUpJob
from tuner.funnel import EVALUATE_LIMIT_S, SET_UP_LIMIT_S, Funnel
from tuner.gpu_lane import Lane
from tuner.outcomes import outcome_of
from tuner.problem import Problem
from tuner.trial import CompileReport, Outcome
from tuner.worker.messages import Died, Done, Reply
from tuner.worker.pool import JobQueue
from tuner.worker.process import Worker

_SETTING_UP, _FOR_ANOTHER = -1, -2
_MOST_FAILED_STARTS = 3
# How long work on the GPU that nobody wants any more may go on before its process is killed: a new one takes seconds.
_PATIENCE_S = 1.0
_BESIDE_SHARE = 0.05


class GpuFunnel(Funnel):
    """Compiles ahead, and keeps the processes of ``lanes`` checking and timing, one candidate each.

    ``typical``: a candidate whose references are computed when a process is set up; ``set_up_s``: how long that took
    last. Without a lane it only compiles.
    """

    def __init__(
        self,
        problem: Problem,
        device: Device,
        compilers: JobQueue,
        seed: int,
        lanes: Sequence[Lane] = (),
        typical: Candidate | None = None,
    ) -> None:
        super().__init__(problem, device, compilers, seed)
        self.lanes: list[Lane] = []
        self._desk = f"{problem.key}/{seed}"
        self._typical = typical
        self._ready: deque[int] = deque()
        self._again: set[int] = set()
        self._busy_before: dict[int, float] = {}
        self._busy_seconds = 0.0
        self._most_lanes = 1
        self.set_up_s = 0.0
        for lane in lanes:
            self.take(lane)

    def take(self, lane: Lane) -> None:
        """From now on ``lane`` works for this funnel. It must be free."""
        lane.ending, lane.failed_starts = False, 0
        self.lanes.append(lane)
        self._busy_before[lane.index] = lane.worker.busy_seconds
        self._most_lanes = max(self._most_lanes, len(self.lanes))

    def leave(self, lane: Lane) -> None:
        """``lane``, which must be free, works for this funnel no longer."""
        self._busy_seconds += lane.worker.busy_seconds - self._busy_before.pop(lane.index)
        self.lanes.remove(lane)

    @property
    def gpu_busy_seconds(self) -> float:
        """Seconds for which a GPU's process was at work for it; of several GPUs the mean."""
        held = sum(lane.worker.busy_seconds - self._busy_before[lane.index] for lane in self.lanes)
        return (self._busy_seconds + held) / self._most_lanes

    @property
    def idle(self) -> bool:
        """Whether its first GPU has nothing to do until a compilation ends."""
        if not self.lanes or self._ready:
            return False
        return self.lanes[0].free and not self.lanes[0].ending and self.lanes[0].is_set_up_for(self._desk)

    @property
    def fits_beside(self) -> bool:
        """Whether the tensors of several processes, or problems of this size, fit into the card's memory at once."""
        return self._operator.bytes_moved(self.problem) < _BESIDE_SHARE * self.device.memory_bytes

    def set_up_job(self) -> SetUpJob:
        """What prepares a GPU's process for the problem."""
        return SetUpJob(self.problem, self.device, self.seed, self._typical)

    def set_up_another(self, job: SetUpJob) -> None:
        """Its first GPU, which must be idle, is set up for another problem too, and then looks at its own again."""
        lane = self.lanes[0]
        lane.clear()
        lane.worker.send(job, SET_UP_LIMIT_S)
        lane.on = _FOR_ANOTHER

    def capacity(self) -> int:
        # Enough to keep every compiler at work and a few candidates ready for each GPU, but not so many that the
        # sampler proposes all of them without having learnt anything.
        more = max(0, len(self.lanes) - 1)
        ahead = 2 * self._compilers.size + 2 * more
        waiting = self._compilers.size + 2 + more - self._compilers.waiting
        return max(0, min(ahead - len(self._travelling), waiting))

    def _busy_workers(self) -> list[Worker]:
        return [lane.worker for lane in self.lanes if lane.on is not None and lane.worker.busy]

    def _compiled_well(self, number: int, report: CompileReport) -> None:
        self._ready.append(number)

    def _advance(self) -> None:
        for lane in list(self.lanes):
            self._advance_on(lane)

    def _advance_on(self, lane: Lane) -> None:
        if lane.on is not None:
            reply = lane.worker.poll()
            if reply is not None:
                number, lane.on = lane.on, None
                if number == _SETTING_UP:
                    self._is_set_up(lane, reply)
                elif number != _FOR_ANOTHER and number in self._travelling:
                    self._evaluated(number, reply, lane)
        if lane.ending:
            return
        if lane.free and not lane.is_set_up_for(self._desk):
            # A process is set up before it gets a candidate, so that a candidate's time limit is its own.
            lane.worker.send(self.set_up_job(), SET_UP_LIMIT_S)
            lane.on = _SETTING_UP
        while lane.free and self._ready:
            number = self._ready.popleft()
            if number not in self._travelling:
                continue
            candidate = self._travelling[number].ticket.candidate
            lane.worker.send(
                EvaluateJob(self.problem, self.device, candidate, self.seed, self.best_us), EVALUATE_LIMIT_S
            )
            lane.on = number

    def _is_set_up(self, lane: Lane, reply: Reply) -> None:
        if isinstance(reply, Done):
            lane.set_up_for(self._desk)
            lane.failed_starts = 0
            self.set_up_s = reply.seconds
            return
        lane.failed_starts += 1
        if lane.failed_starts >= _MOST_FAILED_STARTS:
            _, reason = outcome_of(reply, "set up the GPU")
            which = "the GPU" if lane.alone else f"GPU {lane.index}"
            raise MissingError(f"{which} cannot be used for {self.problem.label}: {reason}")

    def _evaluated(self, number: int, reply: Reply, lane: Lane) -> None:
        seconds = self._travelling[number].seconds
        if not lane.alone:
            seconds["gpu"] = float(lane.index)
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
        seconds["recompiled"] = float(evaluation.recompiled)
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
        for lane in self.lanes:
            if lane.worker.busy:
                wait([lane.worker], _PATIENCE_S)  # type: ignore[list-item]
                if lane.worker.poll() is None:
                    lane.worker.kill()
            lane.on = None
