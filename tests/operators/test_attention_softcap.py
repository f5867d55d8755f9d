"""The softcap of attention's logits: what it costs, its reference, its error term, and what its check sees."""

from __future__ import annotations

import pytest
import torch

from tests.operators.attention_formula import attention
from tuner.check_plan import plan
from tuner.operators import get
from tuner.operators.attention_logits import Terms
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache

BF16 = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=4)
SHAPE = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 33, "kv_len": 57, "head_dim": 16}


def capped(cap, shape=None, **options):
    return get("attention_fwd").problem({**SHAPE, **(shape or {})}, "bf16", {"softcap": cap, **options})


def test_no_cap_is_no_option_and_a_cap_takes_one_more_exponential():
    operator, plain = get("attention_fwd"), capped(None)
    assert capped(0) == plain and "softcap" not in plain.settings
    problem = capped(30)
    assert operator.scalars(problem) == {"scale": 0.25, "softcap": 30.0}
    assert operator.exponentials(problem) == 2 * operator.exponentials(plain)
    assert operator.flops(problem) == operator.flops(plain)


@pytest.mark.parametrize("family", ["randn", "capped", "huge", "nonfinite"])
@pytest.mark.parametrize("options", [{}, {"causal": True, "window_left": 9}])
def test_the_reference_is_the_formula(family, options):
    operator, problem = get("attention_fwd"), capped(5.0, **options)
    inputs = operator.make_inputs(problem, family, 3, "cpu")
    reference = operator.reference(problem, inputs, BF16).outputs
    ends = {"left": 9, "right": 0} if options else {}
    out, lse = attention(inputs, 0.25, softcap=5.0, **ends)
    torch.testing.assert_close(reference["out"].expected, out, rtol=1e-7, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(reference["lse"].expected, lse, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert bool(torch.isfinite(reference["out"].bound[torch.isfinite(out)]).all())


@pytest.mark.parametrize("cap", [0.5, 30.0, 4000.0])
def test_the_error_term_covers_fp32_and_is_no_wide_guess(cap):
    r = torch.linspace(-6 * cap, 6 * cap, 20001)
    computed = cap - 2 * cap / (1 + torch.exp(r * (2 / cap)))
    none = torch.zeros_like(r, dtype=torch.float64)
    logits = Terms(softcap=cap).applied(r.double(), none, 2.0**-22)
    torch.testing.assert_close(logits.s, cap * torch.tanh(r.double() / cap), rtol=0, atol=0)
    ratio = (computed.double() - logits.s).abs() / logits.error
    assert 0.1 < float(ratio.max()) <= 1.0


def test_an_error_of_the_product_counts_as_far_as_the_cap_lets_it():
    r = torch.tensor([0.0, 30.0, 600.0], dtype=torch.float64)
    moved = [float(e) for e in Terms(softcap=30.0).applied(r, torch.full_like(r, 0.03), 0.0).error]
    assert 0.03 < moved[0] < 0.0301  # the slope is 1
    assert 0.0125 < moved[1] < 0.0127  # 1 - tanh(1)^2 is 0.42
    assert moved[2] < 1e-4
    infinite = Terms(softcap=30.0).applied(torch.tensor([torch.inf]).double(), torch.tensor([torch.inf]).double(), 0.0)
    assert float(infinite.s) == 30.0 and float(infinite.error) < 1e-4


@pytest.mark.parametrize("cap", [15.0, 50.0, 1e4])
def test_the_inputs_show_every_error_of_a_cap(cap):
    operator, tiles = get("attention_fwd"), {"q_len": 32, "kv_len": 32}
    problem = capped(cap, {"q_len": 500, "kv_len": 500})
    checks = plan(operator, problem, tiles, {}, BF16, full_size=False)
    assert not hidden_errors(operator, checks, "cpu", 0, ReferenceCache())
    wanted = set(operator.classical_errors(checks.checks[0].problem, tiles))
    assert {"no softcap", "tanh of half the logit", "softcap of logits in base 2"} <= wanted
