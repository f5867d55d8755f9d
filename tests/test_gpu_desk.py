"""What the worker that has the GPU does once for many candidates."""

from __future__ import annotations

from dataclasses import replace

from tuner.evaluating import Candidate
from tuner.gpu_desk import GpuDesk
from tuner.operators import get
from tuner.precision import PrecisionProfile


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
