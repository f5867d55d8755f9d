"""JSON of columns and of the files beside tables: finite numbers of 64 bits, no nesting that exhausts the stack."""

from __future__ import annotations

import json
from typing import Any, NoReturn

_LONGEST_INTEGER = 20


def write_json(value: Any) -> str:
    """``value`` as compact JSON. Raises ``ValueError`` on NaN and infinities."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def read_json(text: str) -> Any:
    """The inverse of ``write_json``. Raises ``ValueError`` on what it cannot have written."""
    try:
        return json.loads(text, parse_int=_integer, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("JSON that is nested too deep") from None


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER or not -(2**63) <= (value := int(digits)) < 2**63:
        raise ValueError(f"the number {digits[:_LONGEST_INTEGER]}... has more than 64 bits")
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
