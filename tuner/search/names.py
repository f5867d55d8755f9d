"""The samplers by name, without loading them."""

from __future__ import annotations

import difflib

from tuner.errors import UsageError

DEFAULT_SAMPLER = "auto"

SAMPLERS: dict[str, str] = {
    "auto": "a model over every valid config (default; tpe where they are too many to list)",
    "tpe": "tree-structured Parzen estimator: learns which values go together",
    "random": "uniform over the valid configs' values, without learning",
    "gp": "Gaussian process (needs scipy and torch)",
    "qmc": "quasi-random: even coverage, without learning (needs scipy)",
    "exhaustive": "every valid config, in a shuffled order",
}


def check_sampler(name: str) -> None:
    """Raises ``UsageError`` that names the known samplers unless ``name`` is one of them."""
    if name in SAMPLERS:
        return
    close = difflib.get_close_matches(name, SAMPLERS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise UsageError(f"unknown sampler {name!r}{hint}; choose one of {', '.join(SAMPLERS)}")
