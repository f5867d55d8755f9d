"""``tuner operators``: what can be tuned."""

from __future__ import annotations

from tuner.cli import options
from tuner.cli.output import answer_only, print_json, say


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
        sizes = [p.name if p.default is None else f"{p.name} (default {p.default})" for p in o.shape_parameters]
        print_facts(
            [
                ("  shape", ", ".join(sizes)),
                ("  options", ", ".join(f"{p.name} (default {_shown(p.default)})" for p in o.options)),
                ("  dtypes", ", ".join(o.dtypes)),
                ("  templates", ", ".join(o.templates)),
                ("  search space", f"{o.valid_configs} valid configs for {o.example.label} on {o.target}"),
            ]
        )
        say("")


def _shown(value: object) -> str:
    return "by the operator" if value is None else str(value).lower()
