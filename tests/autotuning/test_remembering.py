"""What is found is remembered across processes, and for what it was found: each object here stands for a process."""

from __future__ import annotations

import dataclasses
import sqlite3

import pytest
import torch
import triton

import tuner
from tests.autotuning import kernels
from tests.autotuning.standin import FakeCard, Launches, counting
from tests.autotuning.test_launching import configs, doubling
from tuner.loading import load_source

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def twice(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr, {line})

def launch():
    pass
"""


def tune(card, given, n=4, **options):
    """Another process's first launch; returns its kernel."""
    kernel = tuner.autotune(given, key=["n"], **options)(doubling(card))
    kernel[(1,)](torch.ones(4), n)
    return kernel


def test_a_second_process_takes_the_best_from_the_database_and_times_nothing(card):
    tune(card, configs(32, 64))
    with counting(card) as timed:
        kernel = tune(card, configs(32, 64))
        assert timed() == 0
    assert kernel.best_config.kwargs == {"BLOCK": 64}
    assert len(kernel.fn.calls) == 1
    (study,) = tuner.studies()
    assert (study.state, study.trials, study.best_us) == ("finished", 2, 3.0)


def test_the_commands_that_look_back_see_it(card):
    tune(card, configs(32, 64))
    (study,) = tuner.studies()
    assert study.problem.operator == "tests.autotuning.kernels.twice"
    assert tuner.show("1").winner.config.values["BLOCK"] == 64
    assert "@" not in tuner.show("1").space_text and "BLOCK=32" in tuner.show("1").space_text
    rows = tuner.query("trials", operator="tests.autotuning.kernels.twice", shape="n=4", sort=("time_us",)).as_records()
    assert [row["time_us"] for row in rows] == [3.0, 5.0]
    assert tuner.show("1").winner.record.verdict.endswith("not checked: no reference was given")


def test_a_kernel_of_a_users_own_is_left_out_of_tables_and_stops_nothing(card):
    tune(card, configs(32, 64))
    with pytest.raises(tuner.TunerError, match=r"nothing can be exported: tests\.autotuning\.kernels\.twice n=4"):
        tuner.export("python", "unused")


@pytest.mark.parametrize(
    "change",
    [
        {"device": "l2_bytes"},
        {"stack": "triton"},
        {"stack": "driver"},
    ],
    ids=str,
)
def test_another_gpu_or_other_software_is_tuned_for_anew(card, change):
    tune(card, configs(32, 64))
    ((what, field),) = change.items()
    value = getattr(card, what)
    old = getattr(value, field)
    setattr(card, what, dataclasses.replace(value, **{field: old + 1 if isinstance(old, int) else "0"}))
    with counting(card) as timed:
        tune(card, configs(32, 64))
        assert timed() > 0


def test_another_source_is_tuned_anew_and_the_same_elsewhere_is_not(card, tmp_path):
    def first_launch(name, line):
        path = tmp_path / name / "kernel.py"
        path.parent.mkdir()
        path.write_text(KERNEL.format(line=line))
        kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(card, jit=load_source(path).twice))
        with counting(card) as timed:
            kernel[(1,)](torch.ones(4), 4)
            return timed()

    assert first_launch("first", "2 * tl.load(x_ptr)") > 0
    assert first_launch("same", "2 * tl.load(x_ptr)") == 0
    assert first_launch("other", "tl.load(x_ptr) * 2") > 0
    assert len({study.problem.operator for study in tuner.studies()}) == 1


def test_a_longer_list_times_what_is_new_only_and_then_chooses_among_all(card):
    tune(card, configs(32, 64))
    kernel = tuner.autotune(configs(32, 64, 128), key=["n"])(doubling(card, {32: 5.0, 64: 3.0, 128: 3.05}))
    kernel[(1,)](torch.ones(4), 4)
    launched = [call["BLOCK"] for call in kernel.fn.calls]
    assert 32 not in launched and 64 in launched and 128 in launched
    newest = tuner.studies()[0]
    assert (newest.trials, newest.reused) == (3, 2)
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_a_known_config_that_fails_in_this_process_is_not_chosen(card):
    tune(card, configs(32, 64))

    def launch(x_ptr, n, BLOCK, **_):
        if BLOCK == 64:
            raise MemoryError("not here")
        return 3.01

    kernel = tuner.autotune(configs(32, 64, 128), key=["n"])(Launches(kernels.twice, card, launch))
    kernel[(1,)](torch.ones(4), 4)
    assert kernel.best_config.kwargs == {"BLOCK": 128}


def test_a_config_that_could_not_be_compiled_is_not_tried_again(card):
    class CompilationError(Exception):
        pass

    tried = []

    def launch(x_ptr, n, BLOCK, **_):
        tried.append(BLOCK)
        if BLOCK == 64:
            raise CompilationError("at 3:4: no")
        return 1.0

    for given in (configs(64, 32, 128), configs(64, 32, 128, 256)):
        tuner.autotune(given, key=["n"])(Launches(kernels.twice, card, launch))[(1,)](torch.ones(4), 4)
    assert tried.count(64) == 1


def test_a_hook_in_a_config_does_not_keep_it_from_being_remembered(card):
    def hook(named):
        hooked.append(named["n"])

    hooked: list[int] = []
    tune(card, [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64}, pre_hook=hook)])
    hooked.clear()
    with counting(card) as timed:
        kernel = tune(card, [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64}, pre_hook=hook)])
        assert timed() == 0
    assert kernel.best_config.pre_hook is hook and hooked == [4]


def test_nothing_is_remembered_where_that_is_not_wanted(card):
    tune(card, configs(32, 64), cache_results=False)
    with pytest.raises(tuner.TunerError):
        tuner.studies()
    with counting(card) as timed:
        tune(card, configs(32, 64), cache_results=False)
        assert timed() > 0


def test_a_database_of_the_callers_choice_is_used(card, tmp_path):
    tune(card, configs(32, 64), db=str(tmp_path / "own.db"))
    assert len(tuner.studies(db=str(tmp_path / "own.db"))) == 1


def test_a_database_that_cannot_be_used_costs_the_memory_and_nothing_else(card, tmp_path):
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE other (x)")
    with pytest.warns(UserWarning, match="twice: what tuning finds is not remembered: .*foreign.db"):
        kernel = tune(card, configs(32, 64), db=str(foreign))
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_a_stored_best_that_pruning_now_refuses_is_not_used(card):
    tune(card, configs(32, 64, 128))
    kernel = tune(
        card,
        configs(32, 64, 128),
        prune_configs_by={
            "early_config_prune": lambda given, named, **_: [c for c in given if c.kwargs["BLOCK"] != 64]
        },
    )
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_a_process_that_waited_for_the_card_takes_what_the_one_before_it_found(card, monkeypatch):
    from tuner.autotuning import one_call

    tune(card, configs(32, 64))
    monkeypatch.setattr(one_call.OneCall, "recalled", lambda self: None)  # it was not there when this one began
    with counting(card) as timed:
        kernel = tune(card, configs(32, 64))
        assert timed() == 0
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_without_a_gpu_the_best_of_any_gpu_is_used(card: FakeCard, monkeypatch):
    tune(card, configs(32, 64))
    monkeypatch.setattr("tuner.autotuning.card.find_card", lambda: None)
    with pytest.warns(UserWarning, match="there is no GPU .*, so nothing is timed; the stored best config is used"):
        kernel = tune(None, configs(32, 64))
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_ctrl_c_in_the_middle_leaves_the_callers_data_and_the_next_process_goes_on(card):
    tried = []

    def launch(x_ptr, n, BLOCK, **_):
        tried.append(BLOCK)
        x_ptr.mul_(2)
        if tried.count(64) == 2:
            raise KeyboardInterrupt
        return {32: 5.0, 64: 3.0}[BLOCK]

    def doubled(x_ptr):
        return {"x_ptr": 2 * x_ptr}

    def process():
        return tuner.autotune(configs(32, 64), key=["n"], reference=doubled)(Launches(kernels.twice, card, launch))

    x = torch.linspace(1, 2, 8)
    with pytest.raises(KeyboardInterrupt):
        process()[(1,)](x, 8)
    assert torch.equal(x, torch.linspace(1, 2, 8))
    assert [(study.state, study.trials) for study in tuner.studies()] == [("interrupted", 1)]
    known = len(tried)
    kernel = process()
    kernel[(1,)](x, 8)
    assert torch.equal(x, 2 * torch.linspace(1, 2, 8)) and kernel.best_config.kwargs == {"BLOCK": 64}
    assert tried[known] == 64, "what is known was tried again"
    assert [study.state for study in tuner.studies()] == ["finished"]
