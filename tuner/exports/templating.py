"""Fills the templates of generated Python files."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING, Any

from tuner.constants import quoted
from tuner.errors import UsageError

if TYPE_CHECKING:
    from jinja2 import Environment


def fill(template: str, **values: Any) -> str:
    """The text of ``templates/<template>`` with ``values``. A name that is not given is an error."""
    return _environment().get_template(template).render(**values)


def literal(value: object) -> str:
    """``value`` as Python source: plain data, in double quotes, the same text each time."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    raise TypeError(f"{type(value).__name__} is no plain data")


def check_python(name: str, text: str) -> ast.Module:
    """The syntax tree of a generated file. Raises ``UsageError`` where it is not Python."""
    try:
        return ast.parse(text)
    except (MemoryError, RecursionError, SyntaxError, ValueError) as error:
        raise UsageError(f"{name}: is not Python ({error}); export it again") from None


@cache
def _environment() -> Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tuner.exports"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # what is written is Python, and every value goes through `literal`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["literal"] = literal
    return environment
