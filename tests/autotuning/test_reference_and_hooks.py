"""The reference sees each tensor as the launch meets it: zeroed, restored, or as a hook left it."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import triton

import tuner
from tests.autotuning import kernels
from tests.autotuning.standin import Launches
from tests.autotuning.test_launching import TIMES, configs
from tests.autotuning.test_wrong_kernels import RIGHT, WRONG, chosen
from tuner.errors import StudyFailedError


def total(x_ptr, total_ptr):
    return {"total_ptr": total_ptr + x_ptr.sum()}


def total_of_zero(x_ptr):
    return {"total_ptr": x_ptr.sum().reshape(1)}


def summing(wrong=lambda total_ptr: None):
    def launch(x_ptr, total_ptr, n, BLOCK, **_):
        total_ptr.add_(x_ptr.sum())
        if BLOCK == WRONG:
            wrong(total_ptr)
        return TIMES[BLOCK]

    return launch


def numbers():
    return torch.linspace(1, 2, 10), torch.full((1,), 9.0), 10


@pytest.mark.parametrize("reference", [total, total_of_zero])
def test_what_is_zeroed_is_zero_to_the_reference_and_to_every_config(card, reference):
    options = {"jit": kernels.totals, "reference": reference, "reset_to_zero": ["total_ptr"]}
    assert chosen(card, summing(), numbers(), **options)[0] == WRONG  # nothing is wrong with it here
    assert chosen(card, summing(lambda t: t.mul_(1.01)), numbers(), **options, cache_results=False)[0] == RIGHT


def test_where_nothing_is_zeroed_the_reference_sees_what_the_caller_has(card):
    assert chosen(card, summing(), numbers(), jit=kernels.totals, reference=total)[0] == WRONG
    with pytest.raises(StudyFailedError, match="none of 2 configs works: 2 wrong"):
        chosen(card, summing(), numbers(), jit=kernels.totals, reference=total_of_zero)


def test_the_launch_proper_adds_to_what_the_caller_has(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"], reference=total, reset_to_zero=["total_ptr"])(
        Launches(kernels.totals, card, summing())
    )
    x, sum_, n = numbers()
    for expected in (24.0, 39.0):
        kernel[(1,)](x, sum_, n)
        assert sum_.item() == pytest.approx(expected)


def test_one_that_is_right_on_what_the_caller_has_and_not_on_zeros(card):
    def sets(total_ptr):
        total_ptr.add_(9.0 if float(total_ptr) < 20.0 else 0.0)

    options = {"jit": kernels.totals, "reference": total, "reset_to_zero": ["total_ptr"]}
    assert chosen(card, summing(sets), numbers(), **options)[0] == RIGHT


@pytest.mark.parametrize("options", [{}, {"restore_value": ["x_ptr"]}], ids=["found", "named"])
def test_an_in_place_kernel_is_held_to_its_value_before_the_launch(card, options):
    def launch(x_ptr, n, BLOCK, **_):
        x_ptr.mul_(2.0).add_(0.5 if BLOCK == WRONG else 1.0)
        return TIMES[BLOCK]

    x = torch.linspace(0, 3, 8)
    block, why = chosen(
        card, launch, (x, 8), jit=kernels.twice, reference=lambda x_ptr: {"x_ptr": 2.0 * x_ptr + 1.0}, **options
    )
    assert block == RIGHT and "x_ptr" in why
    assert torch.equal(x, 2.0 * torch.linspace(0, 3, 8) + 1.0)


def test_what_a_hook_changes_before_a_launch_is_what_the_reference_sees(card):
    def pre(named):
        named["total_ptr"].fill_(5.0)

    options = {"jit": kernels.totals, "reference": total, "cache_results": False}
    assert chosen(card, summing(), numbers(), **options, pre_hook=pre)[0] == WRONG
    block, _ = chosen(card, summing(lambda t: t.add_(4.0)), numbers(), **options, pre_hook=pre)
    assert block == RIGHT
    # A hook of the caller's takes the place of zeroing, as it does in Triton.
    block, _ = chosen(card, summing(), numbers(), **options, pre_hook=pre, reset_to_zero=["total_ptr"])
    assert block == WRONG


def test_each_config_has_a_hook_of_its_own_and_is_held_to_what_that_leaves(card):
    def launch(x_ptr, total_ptr, n, BLOCK, **_):
        if BLOCK == 128:
            total_ptr.copy_(x_ptr.sum())  # it needs no zeros
        else:
            total_ptr.add_(x_ptr.sum())
        return {32: 5.0, 64: 3.0, 128: 9.0}[BLOCK]

    def zero(named):
        named["total_ptr"].zero_()

    given = [
        triton.Config({"BLOCK": 128}),
        triton.Config({"BLOCK": 32}, pre_hook=zero),
        triton.Config({"BLOCK": 64}),  # adds to whatever is there
    ]
    block, why = chosen(card, launch, numbers(), jit=kernels.totals, given=given, reference=total_of_zero)
    assert block == 32 and "total_ptr" in why


def test_a_hook_that_changes_an_input_changes_what_is_expected_and_is_no_change_by_the_config(card):
    def halve(named):
        named["x_ptr"].mul_(0.5)

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        torch.add(x_ptr, y_ptr, out=out_ptr)
        if BLOCK == WRONG:
            x_ptr.mul_(2.0)
        return TIMES[BLOCK]

    given = [triton.Config({"BLOCK": block}, pre_hook=halve) for block in (RIGHT, WRONG)]
    args = (torch.linspace(1, 2, 8), torch.ones(8), torch.zeros(8), 8)
    block, why = chosen(card, launch, args, given=given, reference=lambda x_ptr, y_ptr: {"out_ptr": x_ptr + y_ptr})
    assert block == RIGHT and "it changes x_ptr" in why


def test_a_hook_after_the_launch_does_not_hide_what_the_launch_left(card):
    def put_back(named, exception):
        named["x_ptr"].copy_(torch.linspace(0, 3, 8))

    def launch(x_ptr, n, BLOCK, **_):
        x_ptr.mul_(2.0 if BLOCK == RIGHT else 1.0)
        return TIMES[BLOCK]

    def twice(x_ptr):
        return {"x_ptr": 2.0 * x_ptr}

    args = (torch.linspace(0, 3, 8), 8)
    assert chosen(card, launch, args, jit=kernels.twice, reference=twice, post_hook=put_back)[0] == RIGHT


def test_what_a_hook_writes_is_put_back_whether_or_not_the_kernel_writes_it(card):
    seen = []

    def count(named):
        seen.append(float(named["y_ptr"][0]))
        named["y_ptr"].add_(1.0)

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        out_ptr.copy_(x_ptr)
        return TIMES[BLOCK]

    kernel = tuner.autotune(configs(32, 64), key=["n"], pre_hook=count)(Launches(kernels.add, card, launch))
    kernel[(1,)](torch.ones(4), torch.ones(4), torch.zeros(4), 4)
    # The launch that learns the host's time is the one more that nothing is put back before.
    assert set(seen) == {1.0}


def test_the_reference_runs_on_the_inputs_alone_where_other_ones_say_nothing_and_the_verdict_says_why(card):
    def lse_given(x_ptr, out_ptr):  # y_ptr goes with x_ptr, and is not read
        return {"out_ptr": x_ptr.exp()}

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        out_ptr.copy_(y_ptr)
        return TIMES[BLOCK]

    x = torch.linspace(0, 1, 8)

    def verdict(reference, args, **options):
        kernel = tuner.autotune(configs(32, 64), key=["n"], reference=reference, **options)(
            Launches(kernels.add, card, launch)
        )
        kernel[(1,)](*args)
        return kernel.verdict

    args = (x, x.exp(), torch.zeros(8), 8)
    alone = "checked on the call's own inputs alone: "
    unread = f"{alone}the reference does not read y_ptr, which may go with what it reads"
    assert verdict(lse_given, args).endswith(unread)
    assert verdict(lambda x_ptr, y_ptr: {"out_ptr": x_ptr.exp() + 0 * y_ptr}, args).endswith(unread)

    def strict(x_ptr, y_ptr):
        assert bool((x_ptr.exp() - y_ptr).abs().max() < 1e-6)
        return {"out_ptr": y_ptr}

    assert verdict(strict, args).endswith(f"{alone}the reference does not take other ones (AssertionError)")
    whole = torch.arange(8)
    assert verdict(lambda x_ptr, y_ptr: {"out_ptr": y_ptr}, (whole, whole, torch.zeros(8).long(), 8)).endswith(
        f"{alone}it has no floating input"
    )
    assert alone not in verdict(lambda x_ptr, y_ptr: {"out_ptr": y_ptr + 0 * x_ptr}, args, scratch=["x_ptr"])
    card.free = 1 << 9
    tight = verdict(lambda x_ptr, y_ptr: {"out_ptr": y_ptr}, args, scratch=["x_ptr"], memory_share=0.9)
    assert tight.endswith(f"{alone}there is no room for more copies of its tensors")


def test_numbers_that_the_reference_has_no_answer_to_are_made_positive(card):
    def root(x_ptr, y_ptr):
        return {"out_ptr": x_ptr.sqrt() + y_ptr}

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        assert bool((x_ptr >= 0).all())
        out_ptr.copy_(x_ptr.sqrt() + y_ptr if BLOCK == RIGHT else 0 * y_ptr)
        return TIMES[BLOCK]

    args = (torch.zeros(64), torch.zeros(64), torch.zeros(64), 64)
    block, why = chosen(card, launch, args, reference=root)
    assert block == RIGHT and why.startswith("reference on made inputs")


def test_infinities_and_whole_numbers_stay_in_made_inputs(card):
    seen = []

    def gather(x_ptr, y_ptr):
        return {"out_ptr": x_ptr[y_ptr]}

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        seen.append((x_ptr.clone(), y_ptr.clone()))
        out_ptr.copy_(x_ptr[y_ptr])
        return TIMES[BLOCK]

    x, places = torch.tensor([1.0, -torch.inf, 2.0, 4.0]), torch.tensor([3, 1, 0, 2])
    assert chosen(card, launch, (x, places, torch.zeros(4), 4), reference=gather)[0] == WRONG
    made = [a for a, _ in seen if not torch.equal(a, x)]
    assert len(made) == 2 and all(torch.equal(b, places) for _, b in seen)
    for a in made:
        assert a[1] == -torch.inf and bool(((a[[0, 2, 3]] >= 1.0) & (a[[0, 2, 3]] <= 4.0)).all())


@dataclasses.dataclass
class Descriptor:
    """As Triton's, of a tensor."""

    base: torch.Tensor
    block_shape: list[int]


def test_a_descriptor_is_given_to_each_launch_as_the_caller_has_it_and_its_tensor_to_the_reference(card):
    seen = []

    def hook(named):
        named["x_ptr"].block_shape[0] = named["BLOCK"]

    def launch(x_ptr, n, BLOCK, **_):
        seen.append((BLOCK, list(x_ptr.block_shape)))
        x_ptr.base.mul_(2.0 if BLOCK == RIGHT else 3.0)
        return TIMES[BLOCK]

    x = Descriptor(torch.linspace(0, 3, 8), [1])
    given = [triton.Config({"BLOCK": RIGHT}, pre_hook=hook), triton.Config({"BLOCK": WRONG})]
    block, why = chosen(
        card, launch, (x, 8), jit=kernels.twice, given=given, reference=lambda x_ptr: {"x_ptr": 2.0 * x_ptr}
    )
    assert block == RIGHT and "x_ptr" in why
    assert {(b, *shape) for b, shape in seen} == {(RIGHT, RIGHT), (WRONG, 1)}
    assert torch.equal(x.base, 2.0 * torch.linspace(0, 3, 8))


def test_a_reference_that_fails_on_what_a_hook_left_is_no_configs_failure(card):
    def pre(named):
        named["total_ptr"].fill_(-1.0)

    def strict(x_ptr, total_ptr):
        assert float(total_ptr) >= 0.0, "nothing below 0"
        return {"total_ptr": total_ptr + x_ptr.sum()}

    said = r"a launch cannot be compared with the reference \(AssertionError: nothing below 0.*; where memory is short"
    with pytest.raises(tuner.TunerError, match=said):
        chosen(card, summing(), numbers(), jit=kernels.totals, reference=strict, pre_hook=pre)
    (study,) = tuner.studies()
    assert (study.state, study.trials) == ("interrupted", 0)
