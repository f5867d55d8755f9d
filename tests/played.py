"""A GPU that is played: what a small space's configs take there, which of them are wrong, and what happens to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.fakes import FakeWorker, rounds, timed, wrong
from tuner.compiling import CompileJob
from tuner.device import MEASURED, Device, Stack
from tuner.evaluating import EvaluateJob, Evaluation, GiveUpJob, RoundsJob, SetUpJob
from tuner.gpu_lane import Lane
from tuner.targets import target
from tuner.worker.messages import Died, Done, Reply
from tuner.workspace import Workspace

DEVICE = target("h200")
STACK = Stack(MEASURED, "3.9.0", "2.13.0", "ptxas 13.0", "580.1", "13.0")
SPACE = """\
operator: softmax
templates:
  faults:
    source: {source}
    switches:
      FAULT: [none, wrong]
    parameters:
      IGNORED: {ignored}
      PROGRAMS_PER_SM: [1]
      num_warps: {warps}
    derived:
      BLOCK_COLS: next_power_of_2(cols)
      NUM_PROGRAMS: min(rows, sms * PROGRAMS_PER_SM)
    tiles: {{cols: BLOCK_COLS}}
    precision: {{tiles: {rescales}}}
    plain: {{FAULT: none, IGNORED: {plain}, PROGRAMS_PER_SM: 1, num_warps: 1}}
"""


@dataclass
class Played:
    """A GPU on which a config takes ``us[num_warps]``; switch ``wrong`` fails the check, and so do ``wrong_at_last``
    (numbers of warps) in the finals. ``stuck``: numbers of warps that never come back. A check takes ``check_s``
    seconds."""

    us: dict[int, float] = field(default_factory=lambda: {1: 20.0, 2: 10.0, 4: 12.0})
    wrong_at_last: set[int] = field(default_factory=set)
    stuck: set[int] = field(default_factory=set)
    dies_at_last: bool = False
    check_s: float = 0.1
    warps: dict[str, int] = field(default_factory=dict)
    workers: list[FakeWorker] = field(default_factory=list)

    def worker(self, name: str = "gpu") -> FakeWorker:
        number = len(self.workers) + 1
        made = FakeWorker(lambda job: self._answer(job, number))
        self.workers.append(made)
        return made

    def _answer(self, job: Any, number: int) -> Reply | None:
        if isinstance(job, SetUpJob | GiveUpJob):
            return Done(0.1, 0.1)
        if isinstance(job, EvaluateJob):
            warps = int(job.candidate.launch_arguments["num_warps"])
            if warps in self.stuck:
                return None
            if "y * 1.02" in Path(job.candidate.source_path).read_text():  # the rendered switch
                return Done(Evaluation(wrong("7 times the bound"), None), 0.1)
            return Done(replace(timed(self.us[warps]), seconds={"check": self.check_s}), 0.1)
        assert isinstance(job, RoundsJob)
        if self.dies_at_last and job.check_first:
            return Died(False, 120.0)
        self.warps |= {c.key: int(c.launch_arguments["num_warps"]) for c in job.candidates}
        failed = {c.key: "NaN" for c in job.candidates if self.warps[c.key] in self.wrong_at_last}
        return Done(rounds(job, self._us, process_id=number, failed=failed), 0.1)

    def _us(self, entry: str, number: int) -> float:
        return self.us[self.warps[entry.removesuffix("/again")]] * (1.0 + 0.001 * (number % 3))


@dataclass
class FakeMachine:
    """The face of ``tuner.machine.Machine`` with the GPU that is played. ``given``: the lanes that finals ran on."""

    played: Played
    workspace: Workspace | None = None
    measures: bool = True
    device: Device = DEVICE
    stack: Stack = STACK
    given: list[Lane | None] = field(default_factory=list)

    def fresh_worker(self, name: str, lane: Lane | None = None) -> FakeWorker:
        self.given.append(lane)
        return self.played.worker(name)


def binary_of(job: CompileJob) -> str:
    """One binary for each source and number of warps: IGNORED makes twins."""
    return f"{Path(job.source_path).name}/{job.launch_arguments['num_warps']}"
