"""What the worker that has the GPU does once for many candidates."""

from __future__ import annotations

from dataclasses import replace

import torch

from tuner.evaluating import Candidate
from tuner.gpu_desk import GpuDesk
from tuner.operators import get
from tuner.precision import PrecisionProfile
from tuner.targets import target
from tuner.worker.messages import WorkerState


def test_candidates_of_one_promise_have_one_plan_and_others_have_their_own():
    desk = GpuDesk.__new__(GpuDesk)  # without a card
    desk.operator = get("softmax")
    desk.problem = desk.operator.problem({"rows": 64, "cols": 3000}, "bf16")
    desk._plans = {}
    first = Candidate("a", "a.py", {}, {"cols": 512}, {}, PrecisionProfile("bf16", "bf16", tiles=6))
    made = desk._plan(first)
    assert desk._plan(replace(first, key="b", launch_arguments={"num_warps": 8}, tiles={"cols": 512})) is made
    assert made.checks[-1].problem == desk.problem and made.tiles == {"cols": 512}
    others = (
        replace(first, tiles={"cols": 1024}),
        replace(first, max_tiles={"cols": 8}),
        replace(first, profile=replace(first.profile, prescaled=True)),
    )
    plans = [desk._plan(other) for other in others]
    assert len({id(p) for p in (made, *plans)}) == 4
    assert plans[0].tiles == {"cols": 1024} and plans[2].checks[-1].profile.prescaled


class Made:
    """Stands in for a desk, without a card."""

    def __init__(self, problem, device, seed):
        self.problem = problem


def test_desks_of_other_problems_stay_while_there_is_room_and_the_oldest_goes_first(monkeypatch):
    device, state = target("h200"), WorkerState()
    problems = [get("softmax").problem({"rows": 64, "cols": cols}, "bf16") for cols in (100, 200, 300)]
    monkeypatch.setattr(GpuDesk, "__init__", Made.__init__)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    each = int(0.15 * device.memory_bytes)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: each * len(state.kept))
    first, second = (GpuDesk.of(state, problem, device, 0) for problem in problems[:2])
    assert GpuDesk.of(state, problems[0], device, 0) is first  # and is now the one used last
    GpuDesk.of(state, problems[2], device, 0)  # two desks take more than a fifth of the card
    assert [desk.problem for desk in state.kept.values()] == [problems[0], problems[2]]
    assert GpuDesk.of(state, problems[1], device, 0) is not second
    GpuDesk.give_up(state, problems[1], 0)
    assert [desk.problem for desk in state.kept.values()] == [problems[2]]
