"""A stored choice holds only while all that decides what a launch computes, or what is right, is what it was.

Each ``tune`` stands for a process of its own.
"""

from __future__ import annotations

import functools
import threading

import pytest
import torch
import triton

import tuner
from tests.autotuning import kernels
from tests.autotuning.standin import Launches, counting
from tests.autotuning.test_launching import TIMES, configs, doubling
from tuner.loading import load_source

GAIN = 2.0


def doubled(x_ptr):
    return {"x_ptr": GAIN * x_ptr}


def timed(card, given=None, below=None, grid=(1,), **options):
    """How many intervals a process's first launch takes; none where it takes a stored choice."""
    kernel = tuner.autotune(given or configs(32, 64), key=["n"], **options)(below or doubling(card))
    with counting(card) as counted:
        kernel[grid](torch.linspace(1, 2, 4), 4)
        return counted()


def test_a_helper_of_the_reference_its_global_or_its_partial_is_another_promise(card, monkeypatch):
    assert timed(card, reference=doubled) > 0
    assert timed(card, reference=doubled) == 0
    monkeypatch.setattr(f"{__name__}.GAIN", 2.0000001)
    assert timed(card, reference=doubled) > 0

    def by(gain):
        return lambda x_ptr: {"x_ptr": gain * x_ptr}

    def scaled(x_ptr, gain=0.0):
        return {"x_ptr": gain * x_ptr}

    for one, other in [
        (by(2.0), by(2)),
        (functools.partial(scaled, gain=2.0), functools.partial(scaled, gain=2)),
    ]:
        assert timed(card, reference=one) > 0
        assert timed(card, reference=one) == 0
        assert timed(card, reference=other) > 0


def test_what_was_right_by_the_old_reference_is_compared_with_the_new_one(card, monkeypatch):
    assert timed(card, reference=doubled) > 0
    monkeypatch.setattr(f"{__name__}.GAIN", 3.0)
    with pytest.raises(tuner.TunerError, match="none of 2 configs works: 2 wrong"):
        timed(card, reference=doubled)


def test_a_module_attribute_that_the_kernel_reads_is_another_kernel(card, tmp_path, monkeypatch):
    (tmp_path / "own_settings_b.py").write_text("GAIN = 2\n")
    (tmp_path / "kernel.py").write_text(
        "import triton\nimport triton.language as tl\nimport own_settings_b\n"
        "@triton.jit\ndef twice(x_ptr, n, BLOCK: tl.constexpr):\n"
        "    tl.store(x_ptr, own_settings_b.GAIN * tl.load(x_ptr))\n"
        "def launch(): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    jit = load_source(tmp_path / "kernel.py").twice
    assert timed(card, below=doubling(card, jit=jit)) > 0
    assert timed(card, below=doubling(card, jit=jit)) == 0
    import own_settings_b  # type: ignore[import-not-found]

    own_settings_b.GAIN = 3
    assert timed(card, below=doubling(card, jit=jit)) > 0


def test_heuristics_below_are_a_part_of_the_kernel(card):
    def launch(x_ptr, n, BLOCK, **_):
        return TIMES[BLOCK]

    def below(limit):
        decorate = triton.heuristics({"EVEN": lambda args: args["n"] > limit})
        return decorate(Launches(kernels.twice, card, launch))

    assert timed(card, below=below(1)) > 0
    assert timed(card, below=below(1)) == 0
    assert timed(card, below=below(2)) > 0


def test_hooks_are_known_by_what_they_do_and_not_by_their_name(card):
    def hook(value):
        return lambda named: named["x_ptr"].fill_(value)

    def given(value):
        return [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64}, pre_hook=hook(value))]

    assert timed(card, given(1.0)) > 0
    assert timed(card, given(1.0)) == 0
    assert timed(card, given(2.0)) > 0
    assert timed(card, pre_hook=hook(1.0)) > 0
    assert timed(card, pre_hook=hook(1.0)) == 0
    assert timed(card, pre_hook=hook(2.0)) > 0
    two = [triton.Config({"BLOCK": 32}, pre_hook=hook(1.0)), triton.Config({"BLOCK": 32}, pre_hook=hook(2.0))]
    assert timed(card, two) > 0
    assert len(tuner.show(str(tuner.studies()[0].id)).trials) == 2


def test_what_is_zeroed_restored_or_scratch_is_a_part_of_what_is_right(card):
    assert timed(card, reference=doubled) > 0
    assert timed(card, reference=doubled, restore_value=["x_ptr"]) > 0
    assert timed(card, reference=doubled, scratch=["x_ptr"]) > 0
    assert timed(card, reference=doubled, made_inputs=False) > 0
    assert timed(card, reference=doubled, made_inputs=False) == 0


def test_a_grid_that_is_a_function_counts_by_its_code(card):
    n = 4
    assert timed(card, grid=lambda meta: (triton.cdiv(n, meta["BLOCK"]),)) > 0
    size = 4
    assert timed(card, grid=lambda given: (triton.cdiv(size, given["BLOCK"]),)) == 0
    assert timed(card, grid=lambda meta: (n // meta["BLOCK"],)) > 0


def test_a_function_that_is_an_argument_is_a_part_of_the_kernel(card, tmp_path):
    def activation(factor):
        path = tmp_path / f"{factor}.py"
        path.write_text(
            f"import triton\n@triton.jit\ndef activation(x):\n    return x * {factor}\ndef launch(): pass\n"
        )
        return load_source(path).activation

    def launch(x_ptr, out_ptr, bias, n, BLOCK, **_):
        return TIMES[BLOCK]

    def first_launch(given):
        kernel = tuner.autotune(configs(32, 64), key=["n"])(Launches(kernels.through_helper, card, launch))
        with counting(card) as counted:
            kernel[(1,)](torch.ones(4), torch.ones(4), given, 4)
            return counted()

    assert first_launch(activation(1)) > 0
    assert first_launch(activation(1)) == 0
    assert first_launch(activation(2)) > 0


def test_what_cannot_be_known_is_tuned_by_every_process_and_that_is_said(card, monkeypatch):
    lock = threading.Lock()

    def guarded(x_ptr):
        with lock:
            return {"x_ptr": 2.0 * x_ptr}

    said = (
        "twice: other processes tune it again, since it is not known when a stored choice would be out of date: "
        "reference, lock: a _thread.lock keeps what it is where it cannot be read"
    )
    with pytest.warns(UserWarning, match=said):
        assert timed(card, reference=guarded) > 0
    with pytest.warns(UserWarning, match=said):
        assert timed(card, reference=guarded) == 0  # of this process it is
    monkeypatch.setattr("tuner.autotuning.fingerprint._RUN", "another process")
    with pytest.warns(UserWarning, match=said):
        assert timed(card, reference=guarded) > 0
    assert timed(card, reference=guarded, cache_results=False) > 0  # nothing is remembered, nothing is said
