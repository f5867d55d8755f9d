"""Bugs of the softcap of logits."""

from __future__ import annotations

from tests.mutation.attention_templates import attention
from tests.mutation.rewriting import Change

_CAP = {"softcap": 20.0}
_CAPPED = "softcap - 2.0 * softcap / (1.0 + squared)"

SOFTCAPS = (
    attention(
        "softcap_left_out",
        "the logits are as large as they come",
        Change(_CAPPED, "x * cap_scale * softcap * 0.5"),
        options=_CAP,
    ),
    attention(
        "softcap_of_half_the_logit",
        "exp(y) where the tanh takes exp(2 y)",
        Change("2.0 * scale / softcap", "scale / softcap"),
        options=_CAP,
    ),
    attention(
        "softcap_in_base_2",
        "the cap is not brought to the base of the logits",
        Change("softcap * LOG2E if USE_EXP2 else softcap", "softcap"),
        options=_CAP,
    ),
    attention(
        "softcap_from_exponentials_that_overflow",
        "(g - 1) / (g + 1) is no number where g is infinite",
        Change(_CAPPED, "softcap * ((squared - 1.0) / (squared + 1.0))"),
        options=_CAP,
    ),
    attention(
        "softcap_not_multiplied_back",
        "tanh of the logit, between -1 and 1",
        Change(_CAPPED, "1.0 - 2.0 / (1.0 + squared)"),
        options=_CAP,
    ),
    attention(
        "softcap_after_the_mask",
        "what is masked counts as -softcap",
        (
            Change("x = _capped(x, logit_scale, softcap, USE_EXP2=USE_EXP2)", "x = x"),
            Change(
                'tl.where(visible, x * qk_scale, float("-inf"))',
                'softcap - 2.0 * softcap / (1.0 + tl.exp2(tl.where(visible, x * logit_scale, float("-inf"))))',
            ),
        ),
        options=_CAP,
        causal=True,
    ),
)
