"""fp8 inputs of attention: q, k and v in e4m3, each with one fp32 scale that it is multiplied by.

``q_scale k_scale`` belongs to the softmax's scale, ``v_scale`` to the output. A tensor is quantised as serving engines
do it with a scale for each tensor: its largest magnitude becomes 448, e4m3's largest number, and all else is rounded to
nearest even. e4m3 has no infinities: one becomes 448 or -448, as the hardware's cast makes it, and does not count for
the scale. A NaN stays.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tuner.numerics import LARGEST_FP8
from tuner.operators.tensors import TORCH_DTYPES

SCALES = {"q": "q_scale", "k": "k_scale", "v": "v_scale"}
"""The scale of each tensor that is quantised: fp32 [1]."""

_LOST = {f"{scale} forgotten": scale for scale in SCALES.values()}
ERRORS = tuple(_LOST)
"""Classical errors with scales: a kernel that leaves one out."""


def quantised(drawn: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """``drawn`` with q, k and v (fp32) in e4m3, and their scales."""
    found = dict(drawn)
    for name, scale_name in SCALES.items():
        wide = drawn[name]
        largest = wide.nan_to_num(0.0, 0.0, 0.0).abs().amax()
        scale = torch.where(largest > 0.0, largest / LARGEST_FP8, 1.0)
        found[name] = (wide / scale).clamp(-LARGEST_FP8, LARGEST_FP8).to(TORCH_DTYPES["fp8"])
        found[scale_name] = scale.reshape(1)
    return found


def exact(
    inputs: Mapping[str, torch.Tensor], scale: float, error: str = ""
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """q, k, v and the softmax's scale that attention of ``inputs`` at ``scale`` is of, without further scales.

    q and k in bf16, which holds every e4m3 number; v in fp64, multiplied by its scale. Inputs without scales as they
    are. ``error``: one of ``ERRORS``, with which a scale is left out.
    """
    q, k, v = (inputs[name] for name in SCALES)
    if SCALES["q"] not in inputs:
        return q, k, v, scale
    of_q, of_k, of_v = (1.0 if name == _LOST.get(error) else float(inputs[name]) for name in SCALES.values())
    return q.bfloat16(), k.bfloat16(), v.double() * of_v, scale * of_q * of_k
