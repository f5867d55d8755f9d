"""The job that finds out, in a worker, why a kernel that failed its check is wrong."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.check_plan import plan
from tuner.evaluating import Candidate
from tuner.operators import get
from tuner.problem import Problem
from tuner.trial import FamilyReport
from tuner.worker.messages import WorkerState


@dataclass(frozen=True)
class ExplainJob:
    """Try a candidate that failed ``failed`` on other tiles and dtypes. Returns one line, empty where nothing is known.

    ``gpu``: whether it was checked, and is to be tried, on the GPU; else in the interpreter.
    """

    problem: Problem
    candidate: Candidate
    failed: FamilyReport
    seed: int
    gpu: bool

    def __call__(self, state: WorkerState) -> str:
        from tuner.interpreter import repair_interpreter
        from tuner.likely_cause import likely_cause

        if not self.gpu:
            state.keep("interpreter", repair_interpreter)
        candidate, operator = self.candidate, get(self.problem.operator)
        made = plan(operator, self.problem, candidate.tiles, candidate.max_tiles, candidate.profile, full_size=self.gpu)
        launch = candidate.launch(few_programs=not self.gpu)
        device = "cuda" if self.gpu else "cpu"
        return likely_cause(launch, operator, made, candidate.max_tiles, self.failed, device, self.seed)
