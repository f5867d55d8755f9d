"""Kernels that a careless check would let pass: one config of each is wrong in its own way, and the fastest."""

from __future__ import annotations

import pytest
import torch
import triton

import tuner
from tests.autotuning import kernels
from tests.autotuning.standin import Launches
from tests.autotuning.test_launching import TIMES, configs
from tuner.errors import StudyFailedError

WRONG, RIGHT = 64, 32  # of these two the wrong one is the faster


def plus(x_ptr, y_ptr):
    return {"out_ptr": x_ptr + y_ptr}


def chosen(card, launch, args, jit=kernels.add, given=None, **options):
    """The block that is chosen, and why the other is not; without ``cache_results`` as if for the first time."""
    kernel = tuner.autotune(given or configs(RIGHT, WRONG), key=["n"], **options)(Launches(jit, card, launch))
    kernel[(1,)](*args)
    if not options.get("cache_results", True):
        return kernel.best_config.kwargs["BLOCK"], ""
    trials = {t.trial.config.values["BLOCK"]: t.trial for t in tuner.show(str(tuner.studies()[0].id)).trials}
    return kernel.best_config.kwargs["BLOCK"], trials[WRONG].reason


def adding(wrong):
    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        if BLOCK == WRONG:
            wrong(x_ptr, y_ptr, out_ptr)
        else:
            torch.add(x_ptr, y_ptr, out=out_ptr)
        return TIMES[BLOCK]

    return launch


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.uint8, torch.bool])
def test_one_that_writes_nothing_over_the_right_answer_in_whole_numbers(card, dtype):
    def either(x_ptr, y_ptr):
        return {"out_ptr": x_ptr | y_ptr}

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        if BLOCK == RIGHT:
            out_ptr.copy_(x_ptr | y_ptr)
        return TIMES[BLOCK]

    x = torch.tensor([0, 1, 1, 0]).to(dtype)
    block, why = chosen(card, launch, (x, x, x.clone(), 4), reference=either)
    assert block == RIGHT and "4 of 4 elements" in why
    assert why.endswith("4 elements are not written; where it keeps what is there, the reference has to read it")


def test_one_that_leaves_out_a_part_of_a_strided_output(card):
    def wrong(x_ptr, y_ptr, out_ptr):
        torch.add(x_ptr[:3], y_ptr[:3], out=out_ptr[:3])

    args = (torch.ones(4), torch.ones(4), torch.full((8,), 2.0)[::2], 4)
    block, why = chosen(card, adding(wrong), args, reference=plus)
    assert block == RIGHT and "1 elements are not written" in why


def test_one_that_is_off_by_one_beyond_what_doubles_tell_apart(card):
    def wrong(x_ptr, y_ptr, out_ptr):
        out_ptr.copy_(x_ptr + y_ptr)
        out_ptr[2] += 1

    x = torch.full((4,), 2**60)
    block, why = chosen(card, adding(wrong), (x, x, torch.zeros_like(x), 4), reference=plus)
    assert block == RIGHT and "off by 1 where it must be exact, at (2,)" in why


def test_one_that_changes_an_input(card):
    def wrong(x_ptr, y_ptr, out_ptr):
        torch.add(x_ptr, y_ptr, out=out_ptr)
        y_ptr[1] = -y_ptr[1]

    x, y = torch.ones(4), torch.linspace(0, 3, 4)
    block, why = chosen(card, adding(wrong), (x, y, torch.zeros(4), 4), reference=plus)
    assert block == RIGHT
    assert "it changes y_ptr, which the reference does not return; name in scratch what may hold anything" in why
    assert y.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_what_one_did_to_an_input_is_not_what_the_next_one_finds(card):
    seen = []

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        seen.append(float(x_ptr[0]))
        torch.add(x_ptr, y_ptr, out=out_ptr)
        if BLOCK == WRONG:
            x_ptr.fill_(7.0)
        return TIMES[BLOCK]

    args = (torch.ones(4), torch.ones(4), torch.zeros(4), 4)
    block, _ = chosen(card, launch, args, given=configs(WRONG, RIGHT), reference=plus, made_inputs=False)
    assert block == RIGHT and set(seen) == {1.0}


def test_one_that_changes_the_sign_of_a_zero_in_an_input(card):
    def wrong(x_ptr, y_ptr, out_ptr):
        torch.add(x_ptr, y_ptr, out=out_ptr)
        x_ptr.neg_().neg_().add_(0.0).mul_(-1.0).mul_(-1.0)

    x = torch.full((4,), -0.0)
    block, why = chosen(card, adding(wrong), (x, torch.ones(4), torch.zeros(4), 4), reference=plus, made_inputs=False)
    assert block == RIGHT and "it changes x_ptr" in why


def test_one_that_writes_between_the_elements_of_an_output_or_behind_it(card):
    def wrong(x_ptr, y_ptr, out_ptr):
        torch.add(x_ptr, y_ptr, out=out_ptr)
        torch.as_strided(out_ptr, (1,), (1,), out_ptr.storage_offset() + 1).fill_(1.0)

    whole = torch.zeros(20)
    block, why = chosen(card, adding(wrong), (torch.ones(4), torch.ones(4), whole[2:18:4], 4), reference=plus)
    assert block == RIGHT and "it writes beside out_ptr, into the memory that the argument is a part of" in why
    assert whole[2:18:4].tolist() == [2.0] * 4 and whole.sum() == 8.0


def test_one_that_changes_an_output_that_the_reference_does_not_name(card):
    def partly(x_ptr):
        return {"y_ptr": 2 * x_ptr}

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        y_ptr.copy_(2 * x_ptr)
        out_ptr.fill_(float(BLOCK))
        return TIMES[BLOCK]

    args = (torch.ones(4), torch.zeros(4), torch.zeros(4), 4)
    with pytest.raises(StudyFailedError, match=r"2 wrong, .*memory at .*: it changes out_ptr, which the reference"):
        chosen(card, launch, args, reference=partly)
    for options in ({"scratch": ["out_ptr"]}, {"reset_to_zero": ["out_ptr"]}, {"restore_value": ["out_ptr"]}):
        assert chosen(card, launch, args, reference=partly, **options)[0] == WRONG  # it is none then


@pytest.mark.parametrize("value", [0.0, 3.5])
def test_one_that_is_right_on_constant_tensors_only(card, value):
    def wrong(x_ptr, y_ptr, out_ptr):
        out_ptr.fill_(float(x_ptr[0] + y_ptr[0]))

    args = (torch.full((64,), value), torch.full((64,), value), torch.zeros(64), 64)
    block, why = chosen(card, adding(wrong), args, reference=plus)
    assert block == RIGHT and why.startswith("reference on made inputs at ")
    assert chosen(card, adding(wrong), args, reference=plus, made_inputs=False)[0] == WRONG


def test_one_that_is_right_on_the_order_of_the_given_numbers_only(card):
    def wrong(x_ptr, y_ptr, out_ptr):
        out_ptr.copy_(torch.arange(64.0) + y_ptr)

    args = (torch.arange(64.0), torch.ones(64), torch.zeros(64), 64)
    assert chosen(card, adding(wrong), args, reference=plus)[0] == RIGHT


def test_one_that_does_not_write_an_in_place_output_that_holds_the_answer(card):
    def squared(x_ptr):
        return {"x_ptr": x_ptr * x_ptr}

    def launch(x_ptr, n, BLOCK, **_):
        if BLOCK == RIGHT:
            x_ptr.square_()
        return TIMES[BLOCK]

    x = torch.tensor([0.0, 1.0, 1.0, 0.0] * 8)
    for options in ({}, {"restore_value": ["x_ptr"]}):
        block, why = chosen(card, launch, (x, 32), jit=kernels.twice, reference=squared, **options)
        assert block == RIGHT and why.startswith("reference on made inputs at ")


def test_one_that_is_wrong_with_some_numbers_of_warps(card):
    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, num_warps, **_):
        torch.add(x_ptr, y_ptr, out=out_ptr)
        if num_warps == 8:
            out_ptr[-1] *= 1.01
        return 10.0 / num_warps

    given = [triton.Config({"BLOCK": 64}, num_warps=warps) for warps in (1, 2, 4, 8)]
    kernel = tuner.autotune(given, key=["n"], reference=plus)(Launches(kernels.add, card, launch))
    kernel[(1,)](torch.ones(8), torch.ones(8), torch.zeros(8), 8)
    assert kernel.best_config.num_warps == 4


def test_where_no_config_is_right_on_made_inputs_the_way_out_is_said(card):
    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        out_ptr.fill_(float(x_ptr[0] + y_ptr[0]))
        return TIMES[BLOCK]

    args = (torch.ones(8), torch.ones(8), torch.zeros(8), 8)
    with pytest.raises(StudyFailedError, match=r"reference on made inputs at .*on no others, say made_inputs=False"):
        chosen(card, launch, args, reference=plus)
