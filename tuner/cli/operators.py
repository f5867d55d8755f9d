"""``tuner operators``: what can be tuned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.cli import options
from tuner.cli.output import answer_only, print_json, say

if TYPE_CHECKING:
    from tuner.operators.base import Option, ShapeParameter


def operators(
    operator: options.OfOperator = None,
    target: options.Target = None,
    db: options.Db = None,
    json: options.Json = False,
) -> None:
    """What can be tuned: operators, their shape parameters and options, templates, and the size of the search space.

    \b
    Example:
      tuner operators --target a100
    """
    from tuner.cli.tables import print_facts

    with answer_only(json):
        from tuner import api

        found = api.list_operators(target=target, operator=operator)
    if json:
        print_json(found)
        return
    for o in found:
        say(f"{o.name}: {o.summary}")
        print_facts(
            [
                ("  shape", ", ".join(_size(p) for p in o.shape_parameters)),
                *(("" if at else "  options", _option(p)) for at, p in enumerate(o.options)),
                ("  dtypes", ", ".join(o.dtypes)),
                ("  templates", ", ".join(o.templates)),
                ("  search space", f"{o.valid_configs} valid configs for {o.example.label} on {o.target}"),
            ]
        )
        say("")


def _size(parameter: ShapeParameter) -> str:
    """``head_dim (16 to 256, a multiple of 8)``; a limit that every size has is not said."""
    usual, words = type(parameter), []
    if parameter.maximum != usual.maximum:
        words.append(f"{parameter.minimum} to {parameter.maximum}")
    elif parameter.minimum != usual.minimum:
        words.append(f"at least {parameter.minimum}")
    if parameter.multiple_of != usual.multiple_of:
        words.append(f"a multiple of {parameter.multiple_of}")
    if parameter.default is not None:
        words.append(f"default {parameter.default}")
    return f"{parameter.name} ({', '.join(words)})" if words else parameter.name


def _option(option: Option) -> str:
    """``--option causal=true: what it does (default false)``; where the operator chooses, its description says so."""
    off = option.default is None and option.zero_is_off
    default = "off" if off else None if option.default is None else str(option.default).lower()
    value = str(not option.default).lower() if option.kind == "bool" else "|".join(option.choices) or "NUMBER"
    words = f"--option {option.name}={value}: {option.description}"
    return words if default is None else f"{words} (default {default})"
