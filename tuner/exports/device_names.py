"""One device, and how each consumer spells it. The canonical name is torch's; a spelled name is never a key of ours."""

from __future__ import annotations

import re

from tuner.device import Device


def model_name(device: Device) -> str:
    """The name as torch gives it; for a bare architecture that of the model that it stands for."""
    stands_for = re.search(r"\(as (.+)\)$", device.name)
    return stands_for[1] if stands_for else device.name


def alphanumeric(device: Device) -> str:
    """fla-core and ffpa-attn: every run of other characters is one underscore (``NVIDIA_A100_SXM4_80GB``)."""
    return re.sub(r"[^0-9A-Za-z]+", "_", model_name(device)).strip("_") or "unknown_gpu"


def underscored(device: Device) -> str:
    """vLLM's tables and FlagGems' database: white space and ``/`` become ``_``, hyphens stay."""
    return re.sub(r"[\s/]+", "_", model_name(device))


def moe_name(model: str) -> str:
    """vLLM's fused MoE tables, from a model's name: as ``underscored``, but every H200 is ``NVIDIA_H200``."""
    name = re.sub(r"[\s/]+", "_", model)
    return "NVIDIA_H200" if "H200" in name.split("_") else name


def arch(device: Device) -> str:
    """``sm_90`` or ``gfx942``."""
    return f"sm_{device.arch}" if isinstance(device.arch, int) else device.arch
