"""Launches under ``@tuner.autotune``: the fastest config, the caller's data as one launch leaves them, and the key."""

from __future__ import annotations

import gc
import inspect
import threading
import weakref

import pytest
import torch
import triton

import tuner
from tests.autotuning import kernels
from tests.autotuning.standin import FakeCard, Launches, counting
from tests.programs import environment, run
from tuner.errors import AutotuneError, StudyFailedError

TIMES = {32: 5.0, 64: 3.0, 128: 9.0}


def configs(*blocks: int, **options: object) -> list[triton.Config]:
    return [triton.Config({"BLOCK": block}, **options) for block in blocks]


def doubling(card, times=TIMES, jit=kernels.twice):
    """``twice`` as a launch, which takes as long as its block says."""

    def launch(x_ptr, n, BLOCK, **_):
        x_ptr.mul_(2)
        return times[BLOCK]

    return Launches(jit, card, launch)


def test_the_fastest_config_is_chosen_and_an_in_place_kernel_is_applied_once(card):
    kernel = tuner.autotune(configs(32, 64, 128), key=["n"])(doubling(card))
    x = torch.arange(100.0)
    assert kernel[(4,)](x, 100) == "launched"
    assert torch.equal(x, 2 * torch.arange(100.0))
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert kernel.cache == {(100, "torch.float32"): kernel.best_config}
    times = {config.kwargs["BLOCK"]: median for config, (median, _, _) in kernel.configs_timings.items()}
    assert times == pytest.approx({32: 5e-3, 64: 3e-3, 128: 9e-3})


def test_every_launch_that_is_timed_finds_the_callers_numbers(card):
    seen = []

    def launch(x_ptr, n, BLOCK, **_):
        seen.append(x_ptr.clone())
        x_ptr.mul_(2)
        return TIMES[BLOCK]

    kernel = tuner.autotune(configs(32, 64), key=["n"])(Launches(kernels.twice, card, launch))
    kernel[(1,)](torch.full((8,), 3.0), 8)
    # Only the launch that learns the host's time may meet what the one before it left: nothing is timed then.
    assert len(seen) > 100
    assert all(torch.equal(x, torch.full((8,), 3.0)) for x in seen)


def test_an_accumulating_kernel_adds_to_what_the_caller_has_once(card):
    def launch(x_ptr, total_ptr, n, BLOCK, **_):
        total_ptr.add_(x_ptr.sum())
        return TIMES[BLOCK]

    kernel = tuner.autotune(configs(32, 64), key=["n"], reset_to_zero=["total_ptr"])(
        Launches(kernels.totals, card, launch)
    )
    x, total = torch.ones(10), torch.full((1,), 5.0)
    for expected in (15.0, 25.0):  # the first launch is like every other
        kernel[(1,)](x, total, 10)
        assert total.item() == expected


def test_arguments_that_share_memory_go_on_sharing_it_in_the_copies(card):
    shared = []

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        shared.append(x_ptr.data_ptr() == out_ptr.data_ptr() and y_ptr.data_ptr() == x_ptr.data_ptr() + 16)
        torch.add(x_ptr, 1.0, out=out_ptr)
        return TIMES[BLOCK]

    kernel = tuner.autotune(configs(32, 64), key=["n"])(Launches(kernels.add, card, launch))
    whole = torch.zeros(12)
    kernel[(1,)](whole[:8], whole[4:], whole[:8], 8)
    assert shared and all(shared)
    assert whole.tolist() == [1.0] * 8 + [0.0] * 4


def test_arguments_by_keyword_in_any_order_are_the_same_call(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(card))
    kernel[(1,)](torch.ones(4), 4)
    with counting(card) as timed:
        kernel[(1,)](n=4, x_ptr=torch.ones(4))
        assert timed() == 0
    kernel[(1,)](n=2, x_ptr=torch.ones(4))
    assert [key for key in kernel.cache] == [(4, "torch.float32"), (2, "torch.float32")]


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (None, (None, "torch.float32")),
        (triton.language.float16, (triton.language.float16, "torch.float32")),
        ([4, 8], ((4, 8), "torch.float32")),
        ({"a": 1}, ("{'a': 1}", "torch.float32")),
        (torch.ones(2, 3), (("tensor", "torch.float32", (2, 3)), "torch.float32", "torch.float32")),
    ],
    ids=["None", "dtype", "list", "dict", "tensor"],
)
def test_whatever_is_in_the_key_is_remembered(card, value, key):
    kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(card))
    kernel[(1,)](torch.ones(4), value)
    assert [*kernel.cache] == [key]
    with counting(card) as timed:
        tuner.autotune(configs(32, 64), key=["n"])(doubling(card))[(1,)](torch.ones(4), value)
        assert timed() == 0


def test_a_tensors_dtype_is_part_of_the_key(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(card))
    for dtype in (torch.float32, torch.float16):
        kernel[(1,)](torch.ones(4, dtype=dtype), 4)
    assert [*kernel.cache] == [(4, "torch.float32"), (4, "torch.float16")]


def test_one_config_is_launched_without_a_look_at_the_gpu(card):
    kernel = tuner.autotune(configs(32), key=["n"])(doubling(card))
    kernel[(1,)](torch.ones(4), 4)
    assert (card.intervals, kernel.cache, kernel.best_config.kwargs) == (0, {}, {"BLOCK": 32})


def test_a_choice_that_is_put_into_the_cache_is_used(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(card))
    kernel.cache[(4, "torch.float32")] = triton.Config({"BLOCK": 128})
    kernel[(1,)](torch.ones(4), 4)
    assert card.intervals == 0 and kernel.fn.calls[-1]["BLOCK"] == 128


def test_each_model_of_gpu_has_choices_of_its_own(card, monkeypatch):
    kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(card))
    kernel[(1,)](torch.ones(4), 4)
    monkeypatch.setattr("tuner.autotuning.card.place", lambda: "another")
    assert kernel.cache == {}


def test_a_config_that_does_not_work_is_passed_over_and_the_reason_is_stored(card):
    class OutOfResources(Exception):
        pass

    def launch(x_ptr, n, BLOCK, **_):
        if BLOCK == 64:
            raise OutOfResources("out of resource: shared memory, Required: 300000, Hardware limit: 232448.")
        if BLOCK == 128:
            raise ZeroDivisionError("no such block")
        return TIMES[BLOCK]

    kernel = tuner.autotune(configs(64, 128, 32), key=["n"])(Launches(kernels.twice, card, launch))
    kernel[(1,)](torch.ones(4), 4)
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    stored = {t.trial.config.values["BLOCK"]: t.trial for t in tuner.show("1").trials}
    assert stored[64].outcome == "out_of_resources" and "Required: 300000" in stored[64].reason
    assert (stored[128].outcome, stored[128].reason) == ("crashed", "ZeroDivisionError: no such block")


def test_where_no_config_works_each_kind_of_failure_is_said_with_an_example(card):
    def launch(x_ptr, n, BLOCK, **_):
        raise RuntimeError(f"no {BLOCK}")

    kernel = tuner.autotune(configs(32, 64), key=["n"])(Launches(kernels.twice, card, launch))
    x = torch.ones(4)
    with pytest.raises(
        StudyFailedError, match=r"twice n=4 fp32 .*none of 2 configs works: 2 crashed, such as .*BLOCK=32,.*: no 32"
    ):
        kernel[(1,)](x, 4)
    assert torch.equal(x, torch.ones(4)) and kernel.cache == {}


def test_failed_launches_keep_no_tensor_alive(card):
    kept = []

    def launch(x_ptr, n, BLOCK, **_):
        scratch = torch.ones(10)
        kept.append(weakref.ref(scratch))
        if BLOCK > 32:
            raise RuntimeError("no")
        return 1.0

    many = [triton.Config({"BLOCK": 32 + i}, num_warps=4) for i in range(3)]
    tuner.autotune(many, key=["n"])(Launches(kernels.twice, card, launch))[(1,)](torch.ones(4), 4)
    gc.collect()
    assert not any(ref() is not None for ref in kept)


def test_a_config_that_breaks_the_gpus_context_ends_the_tuning_and_is_named(card):
    def launch(x_ptr, n, BLOCK, **_):
        card.poisoned = True
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    kernel = tuner.autotune(configs(32, 64), key=["n"])(Launches(kernels.twice, card, launch))
    with pytest.raises(StudyFailedError, match=r"BLOCK=32.* broke this process's GPU context \(CUDA error: an illegal"):
        kernel[(1,)](torch.ones(4), 4)
    assert tuner.studies()[0].state == "interrupted"


def test_two_threads_tune_once(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(card))
    xs = [torch.ones(4) for _ in range(4)]
    threads = [threading.Thread(target=lambda x=x: kernel[(1,)](x, 4)) for x in xs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(x.eq(2).all() for x in xs)
    assert len(tuner.show("1").trials) == 2 and tuner.show("1").winner is not None
    assert sum(call["x_ptr"] is x for call in kernel.fn.calls for x in xs) == 4


def test_a_turn_that_a_thread_had_at_a_fork_does_not_stop_the_child(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, threading\n"
        "from tuner.autotuning.turns import my_turn\n"
        "held, done = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with my_turn():\n"
        "        held.set()\n"
        "        done.wait()\n"
        "threading.Thread(target=hold).start()\n"
        "held.wait()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.alarm(5)\n"
        "    with my_turn():\n"
        "        os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "done.set()\n"
    )
    assert run(script, env=environment(), cwd=tmp_path, limit_s=30).stdout == "7\n"


def test_a_hook_may_launch_another_kernel_for_the_first_time(card):
    inner = tuner.autotune(configs(*range(32, 40)), key=["n"])(
        doubling(card, {block: float(block) for block in range(32, 40)})
    )

    def hook(named):
        inner[(1,)](torch.ones(4), 4)

    outer = tuner.autotune(configs(32, 64), key=["n"], pre_hook=hook)(doubling(card))
    outer[(1,)](torch.ones(8), 8)
    assert outer.best_config.kwargs == {"BLOCK": 64} and inner.best_config.kwargs == {"BLOCK": 32}
    assert len(tuner.studies()) == 2


def test_while_a_graph_is_captured_nothing_is_timed_and_the_choice_is_not_kept(card, monkeypatch):
    kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(card))
    with monkeypatch.context() as capture:
        capture.setattr("tuner.autotuning.card.is_capturing", lambda: True)
        with pytest.warns(UserWarning, match="a CUDA graph is being captured, .*; the first valid config is used"):
            kernel[(1,)](torch.ones(4), 4)
    assert (card.intervals, kernel.best_config.kwargs, kernel.cache) == (0, {"BLOCK": 32}, {})
    kernel[(1,)](torch.ones(4), 4)
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    again = tuner.autotune(configs(32, 64), key=["n"])(doubling(card))
    with monkeypatch.context() as capture:
        capture.setattr("tuner.autotuning.card.is_capturing", lambda: True)
        with pytest.warns(UserWarning, match="the stored best config is used"):
            again[(1,)](torch.ones(4), 4)
    assert again.best_config.kwargs == {"BLOCK": 64}


def test_without_a_gpu_the_first_config_is_used_and_that_is_said_once(card, monkeypatch, recwarn):
    monkeypatch.setattr("tuner.autotuning.card.find_card", lambda: None)
    kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(None))
    for n in (4, 5, 6):
        kernel[(1,)](torch.ones(4), n)
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    assert [(str(w.message), w.filename) for w in recwarn] == [
        (
            "tests.autotuning.kernels.twice: there is no GPU (TRITON_INTERPRET=1 runs kernels without one), so nothing "
            "is timed; the first valid config is used",
            __file__,
        )
    ]


def test_where_the_copies_do_not_fit_nothing_is_timed(card):
    card.free = 2**14
    kernel = tuner.autotune(configs(64, 32), key=["n"], memory_share=0.5)(doubling(card))
    with pytest.warns(UserWarning, match=r"the tensors that it writes take \d+ MiB.*; the first valid config is used"):
        kernel[(1,)](torch.ones(4096), 4096)
    assert (card.intervals, kernel.best_config.kwargs) == (0, {"BLOCK": 64})


def test_where_not_everything_fits_only_what_is_written_is_copied(card):
    card.free = 2**16
    seen = []

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        seen.append((x_ptr is x, out_ptr is out))
        torch.add(x_ptr, y_ptr, out=out_ptr)
        return TIMES[BLOCK]

    kernel = tuner.autotune(configs(32, 64), key=["n"], memory_share=0.5)(Launches(kernels.add, card, launch))
    x, y, out = torch.ones(6000), torch.ones(6000), torch.zeros(6000)
    kernel[(1,)](x, y, out, 6000)
    assert set(seen[:-1]) == {(True, False)} and seen[-1] == (True, True)
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_what_call_and_configs_both_give_is_refused(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(card))
    with pytest.raises(AutotuneError, match="BLOCK is given in the call and by the configs; leave it to one"):
        kernel[(1,)](torch.ones(4), 4, BLOCK=32)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"key": ["m"]}, "key: .*twice has no argument m; it has x_ptr, n, BLOCK"),
        ({"key": ["n"], "reset_to_zero": ["x_ptrs"]}, r"reset_to_zero: .* x_ptrs \(did you mean `x_ptr`\?\)"),
        ({"key": ["n"], "restore_value": ["y"]}, "restore_value: .*no argument y"),
        ({"key": ["n"], "prune_configs_by": {"topk": 1}}, r"prune_configs_by has no 'topk' \(did you mean `top_k`\?\)"),
        ({"key": ["n"], "prune_configs_by": {"top_k": 1.5}}, "top_k must be a share .* but is 1.5"),
        ({"key": ["n"], "rep": -1.0}, "rep must be a number of milliseconds, but is -1.0"),
        ({"key": ["n"], "tolerance": (1e-3, 0.0)}, "tolerance goes with a reference"),
        ({"key": ["n"], "memory_share": 0.0}, "memory_share must be above 0"),
        ({"key": ["n"], "trials": 0}, "trials must be at least 1"),
    ],
)
def test_what_does_not_fit_the_kernel_is_refused_where_it_is_decorated(arguments, said):
    with pytest.raises(ValueError, match=said):
        tuner.autotune(configs(32, 64), **arguments)(doubling(None))


def test_the_arguments_begin_with_those_of_tritons_own_in_its_order():
    theirs = list(inspect.signature(triton.autotune).parameters)
    parameters = inspect.signature(tuner.autotune).parameters
    assert list(parameters)[: len(theirs)] == theirs
    beyond = list(parameters.values())[12:]
    assert beyond and all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in beyond)


def test_no_configs_are_tritons_default():
    kernel = tuner.autotune([], key=[])(doubling(None))
    (only,) = kernel.configs
    assert (only.kwargs, only.num_warps, only.num_stages, only.num_ctas) == ({}, 4, 3, 1)


def test_warmup_compiles_every_config_and_launches_none(card):
    kernel = tuner.autotune(configs(32, 64, num_warps=8), key=["n"])(doubling(card))
    compiled = kernel.warmup(torch.float32, 4, grid=(1,))
    assert [(what, given["BLOCK"], given["num_warps"]) for what, given in compiled] == [
        ("compiled", 32, 8),
        ("compiled", 64, 8),
    ]
    assert kernel.fn.calls == []


def test_it_is_unwrapped_as_tritons_own_is():
    below = doubling(None)
    kernel = tuner.autotune(configs(32), key=["n"])(below)
    assert kernel.fn is below and kernel.fn.fn is kernels.twice
    assert kernel.base_fn is kernels.twice.fn
    assert kernel.arg_names == ["x_ptr", "n", "BLOCK"] and kernel.keys == ["n"]


def test_heuristics_below_and_above_see_what_they_see_under_tritons_own(card):
    def launch(x_ptr, out_ptr, bias, n, BLOCK, EVEN, **_):
        even.append(EVEN)
        return TIMES[BLOCK]

    even: list[object] = []
    below = triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    tuned = tuner.autotune(configs(32, 64), key=["n"])
    kernel = tuned(below(Launches(kernels.through_helper, card, launch)))
    kernel[(1,)](torch.ones(96), torch.ones(96), 0.0, 96)
    assert set(even[:-1]) == {True, False} and even[-1] is False  # 96 = 3 * 32, and 64 is the faster
    above = triton.heuristics({"EVEN": lambda args: args["n"] == 5})
    kernel = above(tuned(Launches(kernels.through_helper, card, launch)))
    even.clear()
    kernel[(1,)](torch.ones(5), torch.ones(5), 0.0, 5)
    assert set(even) == {True}


def test_samples_come_from_a_graph_where_that_is_asked_for(card: FakeCard):
    tuner.autotune(configs(32, 64), key=["n"], use_cuda_graph=True)(doubling(card))[(1,)](torch.ones(4), 4)
    assert card.graphs == card.intervals > 0


def test_close_configs_are_raced_and_of_a_tie_the_earlier_one_wins(card):
    kernel = tuner.autotune(configs(128, 32, 64), key=["n"])(doubling(card, {32: 5.0, 64: 5.001, 128: 5.2}))
    kernel[(1,)](torch.ones(4), 4)
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    assert kernel.verdict.startswith("tie of 2")
    winner = tuner.show("1").winner
    assert winner.record.kind == "tie" and len(winner.record.tie_set) == 2
    stages = [m.measurement.stage for t in tuner.show("1").trials for m in t.trial.measurements]
    assert stages.count("screen") == 3 and stages.count("final") == 3


def test_a_slow_config_is_cut_short(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(card, {32: 5.0, 64: 5000.0}))
    kernel[(1,)](torch.ones(4), 4)
    slow = next(t.trial for t in tuner.show("1").trials if t.trial.config.values["BLOCK"] == 64)
    assert slow.outcome == "pruned" and len(slow.measurements[0].measurement.samples_us) == 1


def test_milliseconds_before_and_while_a_config_is_sampled_are_kept(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"], warmup=1.0, rep=2.0)(doubling(card, {32: 5.0, 64: 5.0}))
    kernel[(1,)](torch.ones(4), 4)
    first = tuner.show("1").trials[0].trial.measurements[0].measurement
    per_sample_us = 64 * 5.0
    assert len(first.samples_us) == 7 and 7 * per_sample_us >= 2000 > 6 * per_sample_us
    assert card.intervals >= 2 * (4 + 7)
