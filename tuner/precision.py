"""What a config promises about its arithmetic. The error bound is computed from it, so it is part of the check."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tuner.numerics import FORMATS

DOT_MODES = ("ieee", "tf32", "tf32x3", "16bit")


@dataclass(frozen=True)
class PrecisionProfile:
    """The declared arithmetic of one config.

    ``input``/``output``/``p``: formats (``tuner.numerics.FORMATS``) of the inputs, the outputs, and the weights P as
    they
    enter the second product. ``dot``: how products are taken (``16bit``: exact products of 16-bit operands, summed in
    fp32). ``tiles``: how many times the running maximum can rise (tiles along the reduced axis, splits included).
    ``prescaled``: the scale was multiplied into the input and rounded back. ``l_from_rounded_p``: the row sum is
    taken of the rounded weights.
    """

    input: str
    output: str
    p: str = "fp32"
    dot: str = "ieee"
    tiles: int = 1
    prescaled: bool = False
    l_from_rounded_p: bool = False

    def __post_init__(self) -> None:
        for field in ("input", "output", "p"):
            value = getattr(self, field)
            if value not in FORMATS:
                raise ValueError(f"`{field}` must be one of {sorted(FORMATS)}, but got {value!r}")
        if self.dot not in DOT_MODES:
            raise ValueError(f"`dot` must be one of {DOT_MODES}, but got {self.dot!r}")
        if self.tiles < 1:
            raise ValueError(f"`tiles` must be at least 1, but got {self.tiles}")

    def as_json(self) -> dict[str, object]:
        """Plain data, stored beside the check that used it."""
        return asdict(self)
