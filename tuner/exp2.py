"""How a Triton version spells the base-2 exponential, read off its wheels.

``tl.exp2`` exists from 3.0. In 2.1 to 2.3 the function is ``tl.math.exp2`` (libdevice). 2.0 has none.
"""

from __future__ import annotations

import re
from typing import Literal

from tuner.errors import TemplateError

Spelling = Literal["tl.exp2", "tl.math.exp2", "shim"]

Version = tuple[int, int]
"""Major and minor version of Triton."""

OLDEST_RENDERED: Version = (2, 1)
"""The oldest Triton that sources can be rendered for."""


def exp2_spelling(triton_version: str | None) -> Spelling:
    """``tl.exp2``, ``tl.math.exp2``, or ``shim`` where the version is not known.

    Raises ``TemplateError`` below Triton 2.1, which has no base-2 exponential.
    """
    if triton_version is None:
        return "shim"
    return "tl.exp2" if parse_version(triton_version) >= (3, 0) else "tl.math.exp2"


def parse_version(text: str) -> Version:
    """(major, minor) of a Triton version such as ``3.6.0`` or ``2.1``. Raises ``TemplateError``."""
    match = re.match(r"v?(\d+)\.(\d+)(?:$|[.+a-z-])", text.strip())
    if match is None:
        raise TemplateError(f"{text!r} is not a Triton version; give one such as 3.6.0 or 2.1")
    version = (int(match[1]), int(match[2]))
    if version < OLDEST_RENDERED:
        raise TemplateError(f"Triton {text} has no base-2 exponential; sources can be rendered for 2.1 and newer")
    return version


def shim(language: str, jit: str) -> str:
    """The source of a module-level ``exp2`` that runs on any Triton from 2.1.

    ``language`` is the name of ``triton.language`` in the file, ``jit`` that of ``triton.jit``. It is a jit function,
    not ``exp2 = tl.exp2 if ...``: the interpreter patches ``triton.language`` in place, and a builtin that was taken
    out of it beforehand fails there.
    """
    return f"""\
# The base-2 exponential is {language}.exp2 from Triton 3.0, and {language}.math.exp2 in 2.1 to 2.3.
if hasattr({language}, "exp2"):

    @{jit}
    def exp2(x):
        return {language}.exp2(x)
else:

    @{jit}
    def exp2(x):
        return {language}.math.exp2(x)
"""
