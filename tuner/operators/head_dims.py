"""The elements of a head in an attention's sizes: of queries and keys, and of values where a problem says others.

Needs nothing of the project, so that what makes shapes and what makes tensors may both ask.
"""

from __future__ import annotations

from collections.abc import Mapping


def value_dim(sizes: Mapping[str, int]) -> int:
    """Elements of a value and of an output's row: ``v_head_dim`` where a problem has it, else ``head_dim``."""
    return sizes.get("v_head_dim", sizes["head_dim"])


def dims_of_heads(sizes: Mapping[str, int]) -> dict[str, int]:
    """Those of ``sizes`` that every other shape of a tuned problem keeps, by name."""
    return {name: sizes[name] for name in ("head_dim", "v_head_dim") if name in sizes}
