"""Hooks, pruning and the caller's own benchmark mean what they mean to ``@triton.autotune``."""

from __future__ import annotations

import math

import pytest
import torch
import triton

import tuner
from tests.autotuning import kernels
from tests.autotuning.standin import FakeCard, Launches
from tests.autotuning.test_launching import TIMES, configs, doubling
from tuner.autotuning.pruning import Pruning
from tuner.errors import AutotuneError, StudyFailedError


def test_hooks_come_in_pairs_around_one_launch_each_and_never_see_the_callers_tensors(card):
    said = []

    def pre(named, reset_only=False):
        assert not reset_only
        said.append("pre")
        assert named["x_ptr"] is not x and named["BLOCK"] in TIMES
        named["x_ptr"].fill_(7.0)

    def post(named, exception):
        said.append("post" if exception is None else f"post {exception}")

    def launch(x_ptr, n, BLOCK, **_):
        said.append("launch")
        assert x_ptr is x or x_ptr.eq(7.0).all()
        x_ptr.mul_(2)
        if BLOCK == 64 and x_ptr is not x:
            raise ValueError("no")
        return TIMES[BLOCK]

    kernel = tuner.autotune(configs(64, 128, 32), key=["n"], pre_hook=pre, post_hook=post)(
        Launches(kernels.twice, card, launch)
    )
    x = torch.ones(4)
    kernel[(1,)](x, 4)
    assert said[:3] == ["pre", "launch", "post no"]
    assert said[3:-1] == ["pre", "launch", "post"] * (len(said[3:-1]) // 3)
    assert said[-1] == "launch" and torch.equal(x, torch.full((4,), 2.0))
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_a_hook_is_not_in_what_is_timed(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"], pre_hook=lambda named: card.work(1000.0))(doubling(card))
    kernel[(1,)](torch.ones(4), 4)
    assert tuner.studies()[0].best_us == 3.0


def test_the_configs_own_hook_is_called_before_the_decorators_and_at_every_launch_of_the_winner(card):
    said = []
    mine = [
        triton.Config({"BLOCK": 32}),
        triton.Config({"BLOCK": 64}, pre_hook=lambda named: said.append(("config", named["x_ptr"] is x))),
    ]
    kernel = tuner.autotune(mine, key=["n"], pre_hook=lambda named: said.append(("decorator", False)))(doubling(card))
    x = torch.ones(4)
    kernel[(1,)](x, 4)
    at = said.index(("config", False))
    assert said[at + 1] == ("decorator", False)
    assert said[-1] == ("config", True)
    kernel[(1,)](x, 4)
    assert said[-2:] == [("config", True), ("config", True)]


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("what", ["restore_value", "reset_to_zero"])
def test_an_argument_that_is_none_may_be_named(card, what, by_name):
    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        out_ptr.fill_(1.0)
        return TIMES[BLOCK]

    kernel = tuner.autotune(configs(32, 64), key=["n"], **{what: ["y_ptr"]})(Launches(kernels.add, card, launch))
    out = torch.full((4,), 2.0)
    if by_name:
        kernel[(1,)](x_ptr=None, y_ptr=None, out_ptr=out, n=4)
    else:
        kernel[(1,)](None, None, out, 4)
    assert torch.equal(out, torch.ones(4)) and kernel.best_config.kwargs == {"BLOCK": 64}


def test_what_is_to_be_zero_is_zero_before_every_launch_that_is_tried(card):
    seen = []

    def launch(x_ptr, total_ptr, n, BLOCK, **_):
        seen.append(float(total_ptr))
        total_ptr.add_(1.0)
        return TIMES[BLOCK]

    kernel = tuner.autotune(configs(32, 64), key=["n"], reset_to_zero=["total_ptr"])(
        Launches(kernels.totals, card, launch)
    )
    kernel[(1,)](torch.ones(4), torch.full((1,), 9.0), 4)
    assert set(seen[:-1]) == {0.0} and seen[-1] == 9.0


def test_a_value_that_the_source_does_not_show_as_written_is_put_back_where_it_is_named(card):
    seen = []

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        seen.append(float(x_ptr[0]))
        x_ptr.add_(1.0)
        return TIMES[BLOCK]

    kernel = tuner.autotune(configs(32, 64), key=["n"], restore_value=["x_ptr"])(Launches(kernels.add, card, launch))
    kernel[(1,)](torch.zeros(4), torch.zeros(4), torch.zeros(4), 4)
    assert set(seen) == {0.0}


@pytest.mark.parametrize("kind", ["early_config_prune", "perf_model"])
def test_a_single_config_that_pruning_leaves_is_used_without_timing(card, kind):
    def early(given, named, **kwargs):
        asked.append((set(named), kwargs["n"], kwargs["grid"]))
        return given[1:2]

    def model(**kwargs):
        asked.append(kwargs["BLOCK"])
        return 0 if kwargs["BLOCK"] == 128 else 1

    asked: list[object] = []
    by = {"early_config_prune": early} if kind == "early_config_prune" else {"perf_model": model, "top_k": 1}
    kernel = tuner.autotune(configs(32, 128), key=["n"], prune_configs_by=by)(doubling(card))
    kernel[(1,)](torch.ones(4), n=4)
    assert kernel.best_config.kwargs == {"BLOCK": 128} and card.intervals == 0
    assert asked == ([({"x_ptr"}, 4, (1,))] if kind == "early_config_prune" else [32, 128])


def test_a_share_is_of_what_the_early_pruning_left_and_keeps_one_at_least(card):
    asked: list[int] = []

    def model(**kwargs):
        asked.append(kwargs["BLOCK"])
        return kwargs["BLOCK"]

    given = configs(*range(1, 11))
    pruned = Pruning.read(
        {"early_config_prune": lambda c, named, **_: c[:6], "perf_model": model, "top_k": 0.5}
    ).pruned(given, {}, {})
    assert [c.kwargs["BLOCK"] for c in pruned] == [1, 2, 3] and asked == [1, 2, 3, 4, 5, 6]
    (one,) = Pruning.read({"perf_model": model, "top_k": 0.3}).pruned(given[:2], {}, {})
    assert one is given[0]


def test_pruning_that_leaves_nothing_is_refused(card):
    kernel = tuner.autotune(
        configs(32, 64), key=["n"], prune_configs_by={"early_config_prune": lambda given, named, **_: []}
    )(doubling(card))
    with pytest.raises(AutotuneError, match="no valid config is left: early_config_prune returned none of 2"):
        kernel[(1,)](torch.ones(4), 4)


def test_a_benchmark_of_the_callers_own_decides_and_sees_fresh_data_at_each_call(card: FakeCard):
    seen = []

    def launch(x_ptr, n, BLOCK, **_):
        seen.append(float(x_ptr[0]))
        x_ptr.mul_(2)
        return 1.0

    def bench(kernel_call, quantiles):
        assert quantiles == (0.5, 0.2, 0.8)
        for _ in range(3):
            kernel_call()
        asked.append(len(asked))
        return [{0: 2.0, 1: 0.5, 2: 1.0}[asked[-1]]] * 3

    asked: list[int] = []
    kernel = tuner.autotune(configs(32, 64, 128), key=["n"], do_bench=bench)(Launches(kernels.twice, card, launch))
    kernel[(1,)](torch.ones(4), 4)
    assert set(seen) == {1.0} and card.intervals == 0
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert (tuner.studies()[0].protocol, tuner.studies()[0].best_us) == ("do_bench", 500.0)


def test_a_benchmark_may_return_one_number(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"], do_bench=lambda call, quantiles: call() or next(times))(
        doubling(card)
    )
    times = iter((2.0, 1.0))
    kernel[(1,)](torch.ones(4), 4)
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_a_benchmark_of_the_callers_own_needs_no_gpu(card, monkeypatch):
    monkeypatch.setattr("tuner.autotuning.card.find_card", lambda: None)
    times = iter((2.0, 1.0))
    kernel = tuner.autotune(configs(32, 64), key=["n"], do_bench=lambda call, quantiles: call() or next(times))(
        doubling(None)
    )
    x = torch.ones(4)
    kernel[(1,)](x, 4)
    assert kernel.best_config.kwargs == {"BLOCK": 64} and x.eq(2.0).all()


@pytest.mark.parametrize("time", [0.0, -1.0, math.inf, math.nan])
def test_a_time_that_cannot_be_never_wins(card, time):
    times = iter((time, 1.0))
    kernel = tuner.autotune(configs(32, 64), key=["n"], do_bench=lambda call, quantiles: [next(times)] * 3)(
        doubling(card)
    )
    kernel[(1,)](torch.ones(4), 4)
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_a_benchmark_that_raises_for_every_config_says_so(card):
    def bench(kernel_call, quantiles):
        raise LookupError("nobody home")

    kernel = tuner.autotune(configs(32, 64), key=["n"], do_bench=bench)(doubling(card))
    with pytest.raises(StudyFailedError, match=r"none of 2 configs works: 2 crashed, .*LookupError: nobody home"):
        kernel[(1,)](torch.ones(4), 4)
