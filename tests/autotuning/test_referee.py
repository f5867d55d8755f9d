"""A config that differs from the reference is never chosen; one that only rounds is."""

from __future__ import annotations

import pytest
import torch
import triton

import tuner
from tests.autotuning import kernels
from tests.autotuning.standin import Launches
from tests.autotuning.test_launching import TIMES, configs
from tuner.autotuning.copies import Copies
from tuner.autotuning.hooks import Hooks
from tuner.autotuning.kernel_source import read_kernel_source
from tuner.autotuning.referee import Referee
from tuner.errors import AutotuneError, StudyFailedError

NO_HOOKS = Hooks()


def plus(x_ptr, y_ptr):
    return {"out_ptr": x_ptr + y_ptr}


def adding(card, wrong):
    """``add`` as a launch, where ``wrong(out, x, BLOCK)`` spoils what one config computes."""

    def launch(x_ptr, y_ptr, out_ptr, n, BLOCK, **_):
        keep = out_ptr.clone()
        torch.add(x_ptr, y_ptr, out=out_ptr)
        wrong(out_ptr, keep, BLOCK)
        return TIMES[BLOCK]

    return Launches(kernels.add, card, launch)


def tuned(card, wrong, reference=plus, dtype=torch.float32, **options):
    kernel = tuner.autotune(configs(32, 64), key=["n"], reference=reference, **options)(adding(card, wrong))
    x = torch.linspace(-4, 4, 100).to(dtype)
    out = torch.zeros(100, dtype=dtype)
    kernel[(1,)](x, x.flip(0) + 1, out, 100)
    return kernel, out


def _scale(out, keep, block):
    if block == 64:
        out.mul_(1.001)


def _tail(out, keep, block):
    if block == 64:
        out[-1] = keep[-1]


def _one_place(out, keep, block):
    if block == 64:
        out[17] += 1e-3


@pytest.mark.parametrize("wrong", [_scale, _tail, _one_place])
def test_a_wrong_config_is_never_chosen_however_fast(card, wrong):
    kernel, _ = tuned(card, wrong)
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    trials = {t.trial.config.values["BLOCK"]: t.trial for t in tuner.show("1").trials}
    assert trials[64].outcome == "wrong" and trials[64].reason.startswith("reference at ")
    assert "out_ptr" in trials[64].reason and not trials[64].measurements
    assert trials[32].check_report.passed
    assert "not checked" not in tuner.show("1").winner.record.verdict


def test_what_a_config_leaves_out_does_not_pass_because_the_caller_has_it_already(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"], reference=plus)(adding(card, _tail))
    x = torch.ones(100)
    kernel[(1,)](x, x, x + x, 100)  # the output holds the right answer before
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def test_where_every_config_is_wrong_the_call_fails_and_the_output_is_as_it_was(card):
    def wrong(out, keep, block):
        out.add_(1.0)

    with pytest.raises(StudyFailedError, match=r"none of 2 configs works: 2 wrong, such as .*BLOCK=32.*out_ptr"):
        tuned(card, wrong)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_rounding_once_more_is_right(card, dtype):
    def rounds(out, keep, block):
        if block == 64:
            out.mul_(1.0 + torch.finfo(dtype).eps / 2)

    kernel, _ = tuned(card, rounds, dtype=dtype)
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_a_tolerance_of_the_callers_own_takes_the_rules_place(card):
    kernel, _ = tuned(card, _scale, tolerance=(1e-2, 1e-2))
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_what_another_reference_found_wrong_is_looked_at_again(card):
    def minus(x_ptr, y_ptr):
        return {"out_ptr": x_ptr - y_ptr}

    with pytest.raises(StudyFailedError):
        tuned(card, lambda *_: None, reference=minus)
    kernel, _ = tuned(card, lambda *_: None)
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_what_a_reference_found_wrong_stays_out_where_none_is_named(card):
    tuned(card, _scale)
    kernel, _ = tuned(card, _scale, reference=None)
    assert kernel.best_config.kwargs == {"BLOCK": 32}


def referee(reference, jit, hooks=NO_HOOKS, **tensors):
    """A referee, and the tensors of the copy that it looks at."""
    given = {**tensors, "n": 4}
    names = [name for name in jit.arg_names if name in given]
    copies = Copies(
        names, [given[n] for n in names], {}, frozenset(), hooked=False, wanted_bytes=0, limit_bytes=1 << 30
    )
    held = Referee(reference, None, read_kernel_source(jit), names, copies, hooks)
    return held, copies.calls[0].named(names)


def test_an_in_place_output_keeps_what_the_caller_has_and_a_pure_one_is_poisoned():
    accumulated, _ = referee(
        lambda x_ptr, total_ptr: {"total_ptr": total_ptr + x_ptr.sum()}, kernels.totals,
        x_ptr=torch.ones(4), total_ptr=torch.ones(1),
    )  # fmt: skip
    assert accumulated.cases[0].pure == ()
    added, named = referee(plus, kernels.add, x_ptr=torch.ones(4), y_ptr=torch.ones(4), out_ptr=torch.zeros(4))
    (own, made) = added.cases
    assert own.pure == made.pure == ("out_ptr",)
    own.poison(named)
    assert named["out_ptr"].isnan().all()
    (verdict,) = own.verdicts(named)
    assert "out_ptr" in verdict.reason


def test_an_output_that_shares_its_memory_with_an_input_is_not_poisoned():
    x = torch.ones(4)
    shared, _ = referee(plus, kernels.add, x_ptr=x, y_ptr=torch.ones(4), out_ptr=x)
    assert shared.cases[0].pure == ()
    whole = torch.ones(12)
    apart, _ = referee(plus, kernels.add, x_ptr=whole[:4], y_ptr=whole[4:8], out_ptr=whole[8:])
    assert apart.cases[0].pure == ("out_ptr",)


def test_where_terms_cancel_the_bound_follows_the_terms_and_not_the_result():
    torch.manual_seed(0)
    a = torch.randn(64, 64) * 1000
    b = torch.randn(64, 64)
    exact = a.double() @ b.double()
    held, named = referee(
        lambda a_ptr, b_ptr: {"c_ptr": a_ptr @ b_ptr}, kernels.product,
        a_ptr=a, b_ptr=b, c_ptr=torch.zeros(64, 64),
    )  # fmt: skip
    # tf32: 11 bits of each operand, as the kernel's dot takes by default.
    rounded = [((t.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) for t in (a, b)]
    named["c_ptr"].copy_(rounded[0] @ rounded[1])
    assert [v.reason for v in held.cases[0].verdicts(named)] == [""]
    named["c_ptr"].copy_(exact - a.double()[:, :1] @ b.double()[:1])  # one of 64 terms is left out
    assert all(v.reason for v in held.cases[0].verdicts(named))


def test_whole_numbers_must_be_equal(card):
    def off_by_one(out, keep, block):
        if block == 64:
            out[3] += 1

    def launch_int(reference):
        kernel = tuner.autotune(configs(32, 64), key=["n"], reference=reference)(adding(card, off_by_one))
        x = torch.arange(10)
        kernel[(1,)](x, x, torch.zeros(10, dtype=torch.int64), 10)
        return kernel.best_config.kwargs["BLOCK"]

    assert launch_int(plus) == 32


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (lambda x_ptr: x_ptr, "must return a dictionary from argument name to expected tensor, but returned Tensor"),
        (lambda x_ptr: {"out": x_ptr}, r"returned 'out', which is no tensor argument .*x_ptr, y_ptr, out_ptr"),
        (lambda x_ptr: {"out_ptr": x_ptr[:2]}, r"returned out_ptr of shape \(2,\), but the argument has \(4,\)"),
        (lambda x_ptr, other: {"out_ptr": x_ptr}, "cannot be called with the kernel's arguments by name: .*'other'"),
    ],
)
def test_a_reference_that_cannot_be_used_is_refused(reference, said):
    with pytest.raises(AutotuneError, match=said):
        referee(reference, kernels.add, x_ptr=torch.ones(4), y_ptr=torch.ones(4), out_ptr=torch.zeros(4))


def test_the_reference_gets_floats_in_float64_and_copies_of_everything(card):
    def reference(x_ptr, y_ptr, out_ptr, n):
        assert x_ptr.dtype == torch.float64 and n == 100
        return {"out_ptr": x_ptr.mul_(1.0) + y_ptr}

    kernel, out = tuned(card, lambda *_: None, reference=reference)
    x = torch.linspace(-4, 4, 100)
    assert torch.equal(out, x + (x.flip(0) + 1))
    assert isinstance(kernel.best_config, triton.Config)
