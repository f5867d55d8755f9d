"""Two calls share a choice exactly where the compiler makes one kernel of them."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import tuner
from tests.autotuning import kernels
from tests.autotuning.standin import Launches, counting
from tests.autotuning.test_launching import TIMES, configs, doubling
from tuner.autotuning.arguments import by_name, defaults_of, problem_of, tuning_key

KEYS = ["n"]


def keys_of(**named):
    """The key in this process, and the problem that is stored."""
    ordered = by_name(kernels.add.arg_names, (), named)
    return tuning_key(KEYS, ordered, {}), problem_of("add", KEYS, ordered, {}).key


X, H = torch.ones(4), torch.ones(4).half()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n": 1}, {"n": True}),
        ({"n": 1}, {"n": 1.0}),
        ({"n": 0}, {"n": False}),
        ({"n": 1.0}, {"n": "1.0"}),
        ({"n": True}, {"n": "True"}),
        ({"n": None}, {"n": "None"}),
        ({"n": 0.0}, {"n": -0.0}),
        ({"n": (1, 2)}, {"n": (True, 2)}),
        ({"n": tl.float16}, {"n": "fp16"}),
        ({"n": tl.float16}, {"n": tl.float32}),
        ({"n": 4, "x_ptr": X, "y_ptr": H}, {"n": 4, "x_ptr": H, "y_ptr": X}),
        ({"n": 4, "x_ptr": X, "y_ptr": None}, {"n": 4, "x_ptr": None, "y_ptr": X}),
    ],
    ids=str,
)
def test_what_is_equal_in_python_and_another_kernel_has_another_key(one, other):
    for mine, others in zip(keys_of(**one), keys_of(**other), strict=True):
        assert mine != others


def test_the_order_in_which_arguments_are_named_is_none_of_the_key():
    calls = [{"n": 4, "y_ptr": H, "x_ptr": X}, {"x_ptr": X, "y_ptr": H, "n": 4}]
    assert keys_of(**calls[0]) == keys_of(**calls[1])
    assert [*by_name(["x", "y", "n"], (1,), {"n": 3, "y": 2, "grid": 0})] == ["x", "y", "n"]
    assert keys_of(n=float("nan")) == keys_of(n=float("nan"))


def test_a_default_that_is_given_is_the_same_call(card):
    def launch(x_ptr, out_ptr, bias, n, BLOCK, **_):
        return TIMES[BLOCK]

    assert defaults_of(kernels.through_helper) == {"EVEN": True}
    kernel = tuner.autotune(configs(32, 64), key=["EVEN"])(Launches(kernels.through_helper, card, launch))
    x = torch.ones(4)
    kernel[(1,)](x, x, 0.0, 4)
    with counting(card) as timed:
        kernel[(1,)](x, x, 0.0, 4, EVEN=True)
        assert timed() == 0
        kernel[(1,)](x, x, 0.0, 4, EVEN=1)
        assert timed() > 0


def test_a_kernel_is_tuned_once_for_true_and_once_for_one(card):
    kernel = tuner.autotune(configs(32, 64), key=["n"])(doubling(card))
    for n in (1, True, 1.0):
        with counting(card) as timed:
            kernel[(1,)](torch.ones(4), n)
            assert timed() > 0
            kernel[(1,)](n=n, x_ptr=torch.ones(4))
            once = timed()
            kernel[(1,)](x_ptr=torch.ones(4), n=n)
            assert timed() == once
    assert len(kernel.cache) == 3 and len(tuner.studies()) == 3
    assert next(iter(kernel.cache)) == (1, "torch.float32")  # as Triton's, where Triton tells them apart


def test_a_descriptors_dtype_is_part_of_the_key():
    class Descriptor:
        def __init__(self, base):
            self.base, self.block_shape = base, [2]

    assert keys_of(n=4, x_ptr=Descriptor(X)) != keys_of(n=4, x_ptr=Descriptor(H))
    assert keys_of(n=4, x_ptr=Descriptor(X)) == keys_of(n=4, x_ptr=Descriptor(X.clone()))
