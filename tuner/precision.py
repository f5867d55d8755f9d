"""What a config promises about its arithmetic. The error bound is computed from it, so it is part of the check."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from tuner.numerics import EXPONENTIALS, FORMATS

DOT_MODES = ("ieee", "tf32", "tf32x3", "16bit", "8bit")
LSE_BASES = ("natural", "base2")


@dataclass(frozen=True)
class PrecisionProfile:
    """The declared arithmetic of one config.

    ``input``/``output``/``p``: formats (``tuner.numerics.FORMATS``) of the inputs, the outputs, and the weights P as
    they enter the second product. ``dot``: how products are taken (``16bit``: exact products of 16-bit operands, summed
    in fp32; ``8bit``: exact products of fp8 operands, summed by tensor cores that keep 14 bits); ``pv_dot``: the same
    for the second product where it differs (empty: as ``dot``). ``pv_terms``: where that is ``8bit``, how many products
    are summed so before they join a sum in fp32. ``p_scale``: what a weight of 1 is multiplied by before it is rounded
    to ``p``. ``accumulator``: the format of the running sums (of products, of weights, of the output).
    ``exponential``: which instruction gives the weights (``tuner.numerics.EXPONENTIALS``). ``lse_base``: the base of
    the log-sum-exp that is stored.
    ``tiles``: how many times the running maximum can rise (tiles along the reduced axis, splits included).
    ``prescaled``: the scale was multiplied into the input and rounded back. ``l_from_rounded_p``: the row sum is taken
    of the rounded weights. ``atomics``: sums are made in an order that differs from launch to launch, so that repeated
    launches give the same within the bound and not the same bits.
    """

    input: str
    output: str
    p: str = "fp32"
    dot: str = "ieee"
    tiles: int = 1
    prescaled: bool = False
    l_from_rounded_p: bool = False
    pv_dot: str = ""
    accumulator: str = "fp32"
    exponential: str = "ex2"
    lse_base: str = "natural"
    atomics: bool = False
    pv_terms: int = 0
    p_scale: float = 1.0

    def __post_init__(self) -> None:
        for field in ("input", "output", "p", "accumulator"):
            value = getattr(self, field)
            if value not in FORMATS:
                raise ValueError(f"`{field}` must be one of {sorted(FORMATS)}, but got {value!r}")
        if self.dot not in DOT_MODES:
            raise ValueError(f"`dot` must be one of {DOT_MODES}, but got {self.dot!r}")
        if self.pv_dot and self.pv_dot not in DOT_MODES:
            raise ValueError(f"`pv_dot` must be one of {DOT_MODES}, but got {self.pv_dot!r}")
        if self.exponential not in EXPONENTIALS:
            raise ValueError(f"`exponential` must be one of {sorted(EXPONENTIALS)}, but got {self.exponential!r}")
        if self.lse_base not in LSE_BASES:
            raise ValueError(f"`lse_base` must be one of {LSE_BASES}, but got {self.lse_base!r}")
        if self.tiles < 1:
            raise ValueError(f"`tiles` must be at least 1, but got {self.tiles}")
        least = int((self.pv_dot or self.dot) == "8bit")
        if not isinstance(self.pv_terms, int) or self.pv_terms < least:
            raise ValueError(f"`pv_terms` must be a whole number of at least {least}, but got {self.pv_terms!r}")
        if not isinstance(self.p_scale, int | float) or not 0.0 < self.p_scale < math.inf:
            raise ValueError(f"`p_scale` must be a positive number, but got {self.p_scale!r}")

    def as_json(self) -> dict[str, object]:
        """Plain data, stored beside the check that used it. What few configs declare is there where it is declared."""
        data = asdict(self)
        return {name: value for name, value in data.items() if name not in _SELDOM or value != _SELDOM[name]}


_SELDOM = {
    "pv_dot": "",
    "accumulator": "fp32",
    "exponential": "ex2",
    "lse_base": "natural",
    "atomics": False,
    "pv_terms": 0,
    "p_scale": 1.0,
}
