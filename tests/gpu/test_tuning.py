"""The main job on a GPU: measured, right, and without a compilation at launch."""

from __future__ import annotations

import time as clock

import pytest

import tuner
from tuner.targets import target
from tuner.trial import Outcome

SOFTMAX = ("softmax", {"rows": 300, "cols": 1000, "row_stride": 1010}, {})
ATTENTION = (
    "attention_fwd",
    {"batch": 1, "heads": 8, "kv_heads": 2, "q_len": 1000, "kv_len": 1500, "head_dim": 64},
    {"causal": True},
)
GRADIENTS = ("attention_bwd", *ATTENTION[1:])
DECODE = ("attention_decode", {"batch": 8, "heads": 8, "kv_heads": 2, "q_len": 2, "kv_len": 1500, "head_dim": 64}, {})
PAGES = ("attention_decode", {**DECODE[1], "page_size": 64}, {})
PACKED = (
    "attention_varlen",
    {"batch": 20, "heads": 8, "kv_heads": 2, "max_len": 1000, "head_dim": 64},
    {"causal": True, "lengths": "skewed"},
)


@pytest.mark.parametrize(
    ("operator", "shape", "options"),
    [SOFTMAX, ATTENTION, GRADIENTS, DECODE, PAGES, PACKED],
    ids=["softmax", "attention_fwd", "attention_bwd", "attention_decode", "pages", "attention_varlen"],
)
def test_a_study_ends_with_a_measured_winner_that_was_compiled_ahead(
    operator: str, shape: dict[str, int], options: dict[str, bool | str], database: str
) -> None:
    problem = tuner.make_problem(operator, shape, "bf16", options)
    result = tuner.tune(problem, trials=24, db=database, gpu=True)
    assert result.winner is not None
    assert not result.winner.record.estimated
    detail = tuner.show(result.study.name, db=database)
    outcomes = [t.trial.outcome for t in detail.trials]
    # Small problems, whose kernels are nearly as fast as one another: hardly any is three times slower.
    assert outcomes.count(Outcome.PRUNED) <= len(outcomes) / 2
    timed = [t.trial for t in detail.trials if t.trial.outcome is Outcome.TIMED and not t.trial.same_as]
    assert timed
    assert {t.seconds["recompiled"] for t in timed} == {0.0}, "a launch compiled what the pool had compiled already"
    wrong = [t.trial.reason for t in detail.trials if t.trial.outcome in (Outcome.WRONG, Outcome.CRASHED)]
    assert not wrong
    assert tuner.best(problem, db=database) == result.winner
    finals = [m for t in timed for m in t.measurements if m.measurement.stage == "final"]
    assert finals
    assert len(finals[0].measurement.samples_us) >= 20
    assert finals[0].measurement.states[0].sm_clock_mhz > 0


def test_problems_that_are_tuned_together_end_with_a_measured_winner_each(database: str) -> None:
    problems = [tuner.make_problem(name, shape, "bf16", options) for name, shape, options in (SOFTMAX, ATTENTION)]
    with tuner.Session(db=database, gpu=True) as session:
        results = session.tune_many(problems, trials=10)
    for problem, result in zip(problems, results, strict=True):
        assert isinstance(result, tuner.TuneResult)
        assert result.winner is not None
        assert not result.winner.record.estimated
        assert result.winner == tuner.best(problem, db=database)


@pytest.mark.alone
def test_the_rough_time_of_one_call_is_not_the_hosts() -> None:
    import torch

    from tuner.operators import get
    from tuner.timing import Timer, warm_up

    problem = tuner.make_problem("softmax", {"rows": 256, "cols": 1024}, "bf16")
    warm_up()
    timer = Timer(get("softmax"), problem, 0, 2**20)

    def launch(x: torch.Tensor, out: torch.Tensor) -> None:
        clock.sleep(5e-4)  # Python's launch of a kernel takes a tenth of it, and more than the kernel
        out.copy_(x)

    assert timer.prepare(launch, give_up_us=100.0).calls > 0
    assert timer.prepare(launch).first_us < 100.0


@pytest.mark.alone
def test_what_was_allocated_before_makes_no_sample_slower() -> None:
    import torch

    from tuner.operators import get
    from tuner.timing import Timer

    problem = tuner.make_problem("softmax", {"rows": 4096, "cols": 32768}, "bf16")
    timer = Timer(get("softmax"), problem, 0, 2**26)

    def launch(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(x)

    prepared = timer.prepare(launch)
    before = min(timer.sample(prepared) for _ in range(5))
    for _ in range(3):
        taken = [torch.zeros(2**30, dtype=torch.uint8, device="cuda") for _ in range(16)]
        torch.cuda.synchronize()
        del taken  # the allocator keeps it; the driver, which would overwrite it, must not get it now
        prepared = timer.prepare(launch)
        assert min(timer.sample(prepared) for _ in range(3)) < 1.04 * before


@pytest.mark.alone
def test_one_config_is_checked_and_timed_with_a_cold_cache() -> None:
    problem = tuner.make_problem("softmax", {"rows": 4096, "cols": 1024}, "bf16")
    result = tuner.time(problem)
    assert result.check.passed
    assert result.check.mode == "gpu"
    assert result.measurement is not None
    # 16 MiB would fit into the cache; found there, they would arrive faster than any memory delivers.
    moved = 2 * 2 * 4096 * 1024
    if result.device.name == target("h200").name:
        assert moved / (result.measurement.median_us * 1e-6) < result.device.memory_bandwidth
    assert result.measurement.high_us < 1.1 * result.measurement.low_us
