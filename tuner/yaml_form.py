"""pydantic's complaints about the form of a YAML file, as errors with a line."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from tuner.errors import SpaceError
from tuner.located_yaml import Located
from tuner.naming import did_you_mean, listed

_EXPECTED = {
    "dict_type": "a mapping (`name: value`)",
    "model_type": "a mapping (`name: value`)",
    "list_type": "a list (`[a, b]`)",
    "string_type": "text",
}


def form_error(
    located: Located, error: ValidationError, *, outer: type[BaseModel], inner: type[BaseModel]
) -> SpaceError:
    """The first complaint, by line. ``outer`` is the form of the whole file, ``inner`` that of the mappings in it."""
    # A key that is missing may be there, but misspelt: an unknown key is the better complaint.
    first = min(error.errors(), key=lambda item: (item["type"] == "missing", located.line(item["loc"])))
    where, kind = first["loc"], first["type"]
    if kind == "extra_forbidden":
        known = list((outer if len(where) == 1 else inner).model_fields)
        return located.error(where, f"unknown key{did_you_mean(where[-1], known)}", f"known: {listed(known)}")
    if kind == "missing":
        return located.error(where[:-1], f"the key `{where[-1]}` is missing", "add it")
    expected = _EXPECTED.get(kind)
    problem = f"must be {expected}, but is {shown(first['input'])}" if expected else first["msg"]
    return located.error(where, problem, "correct it")


def shown(value: object) -> str:
    """``value`` for a message, cut off where it is long."""
    text = "nothing" if value is None else f"{value!r}"
    return text if len(text) <= 60 else f"{text[:57]}..."
