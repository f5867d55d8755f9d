"""How a config is written on a command line: ``template=online,BLOCK_COLS=4096,USE_EXP2=true``."""

from __future__ import annotations

import math

from tuner.config import Value
from tuner.errors import ConfigError

MAX_TEXT = 10_000
_WORDS = {"true": True, "false": False}


def parse_config_text(text: str) -> dict[str, Value]:
    """The names and typed values of ``text``, in its order; spaces around them do not count.

    Raises:
        ConfigError: a part is not ``name=value``, or a name is given twice.
    """
    if len(text) > MAX_TEXT:
        raise ConfigError(f"a config of {len(text)} characters; at most {MAX_TEXT} are read")
    values: dict[str, Value] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (name and equals and value):
            raise ConfigError(f"cannot read `{part.strip()}` in a config; write name=value, as in BLOCK_COLS=4096")
        if name in values:
            raise ConfigError(f"{name} is given twice in a config; keep one")
        values[name] = value if name == "template" else typed(value)
    return values


def typed(word: str) -> Value:
    """``word`` as true/false, a whole number, a number, or else text."""
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    for kind in (int, float):
        try:
            value = kind(word)
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    return word
