"""How messages speak of names: the nearest known one, and lists of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SHOWN = 24


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """``" (did you mean `cols`?)"`` where a known name is near ``name``, else nothing."""
    word, names = str(name), list(known)
    folded = {candidate.lower(): candidate for candidate in reversed(names)}
    near = difflib.get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return f" (did you mean `{folded[near[0]]}`?)" if near else ""


def listed(names: Iterable[object]) -> str:
    """``a, b, c``, cut off after ``SHOWN`` names; ``none`` where there are none."""
    words = [str(name) for name in names]
    if len(words) > SHOWN:
        words = [*words[:SHOWN], f"... ({len(words) - SHOWN} more)"]
    return ", ".join(words) or "none"
