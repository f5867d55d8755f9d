"""What every shipped template must do: be in a space, render in every combination, and keep no switch."""

from __future__ import annotations

import ast
import dataclasses
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tuner.rendering import render
from tuner.shipped import search_spaces_dir, variants_dir
from tuner.template import Template, load_template

Entry = tuple[str, str, dict[str, Any]]


def entries() -> list[Entry]:
    """(operator, template, its table) of every shipped search space."""
    found = []
    for path in sorted(search_spaces_dir().glob("*.yaml")):
        space = yaml.safe_load(path.read_text(encoding="utf-8"))
        found += [(space["operator"], name, table) for name, table in space["templates"].items()]
    return found


ENTRIES = entries()


def load(entry: Entry) -> Template:
    operator, name, table = entry
    return load_template(operator, name, variants_dir() / table["source"])


def combinations(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Choices of the switches that differ from the first ones in at most two, so that every two meet.

    A switch that an expression fixes (a string) is taken as a flag. The first of them is as the searched ones are; each
    further one is a feature, which is turned on by itself.
    """
    switches = table.get("switches") or {}
    fixed = [name for name, c in switches.items() if not isinstance(c, list)]
    choices = {name: c if isinstance(c, list) else [False, True] for name, c in switches.items()}
    choices |= {feature: [False] for feature in fixed[1:]}
    every = [dict(zip(switches, chosen, strict=True)) for chosen in product(*choices.values())]
    first = every[0]
    near = [chosen for chosen in every if sum(chosen[name] != first[name] for name in chosen) <= 2]
    alone = [first, *({**first, name: True} for name in fixed[:1])]
    return near + [{**chosen, feature: True} for feature in fixed[1:] for chosen in alone]


def one_at_a_time(table: dict[str, Any]) -> list[dict[str, Any]]:
    """The combinations that differ from the first one in at most one switch."""
    every = combinations(table)
    return [chosen for chosen in every if sum(chosen[name] != every[0][name] for name in chosen) <= 1]


def of_each_entry(function):
    return pytest.mark.parametrize("entry", ENTRIES, ids=[f"{o}-{n}" for o, n, _ in ENTRIES])(function)


@of_each_entry
def test_every_combination_of_switches_renders_to_python_without_a_switch(entry):
    template = load(entry)
    table = entry[2]
    again_too = one_at_a_time(table)
    sources = {}
    for switches in combinations(table):
        variant = render(template, switches, "3.9.0")
        compile(variant.source, "variant", "exec")
        again = dataclasses.replace(template, source=variant.source)
        launch = next(
            n for n in ast.parse(variant.source).body if isinstance(n, ast.FunctionDef) and n.name == "launch"
        )
        names = {n.id for n in ast.walk(launch) if isinstance(n, ast.Name)} | {a.arg for a in launch.args.kwonlyargs}
        assert names.isdisjoint(switches)
        assert names >= set(template.launch_parameters) - set(switches)
        if switches in again_too:
            assert render(again, {}, "3.9.0").source == variant.source
        assert not [line for line in variant.source.splitlines() if line != line.rstrip()]
        sources[tuple(switches.items())] = variant.source
    for name in table.get("switches") or {}:
        others = [(tuple((n, v) for n, v in chosen if n != name), source) for chosen, source in sources.items()]
        assert len(set(others)) > len({rest for rest, _ in others}), f"{name} changes nothing"


@of_each_entry
def test_a_rendering_for_an_unknown_version_runs_on_any(entry):
    template = load(entry)
    for switches in one_at_a_time(entry[2]):
        variant = render(template, switches, None)
        assert ("tl.exp2(x)" in variant.source) == (variant.exp2 == "shim")
        assert variant.source.count("tl.exp2(") == (1 if variant.exp2 == "shim" else 0)


def test_every_shipped_template_is_in_a_search_space():
    linked = {variants_dir() / table["source"] for _, _, table in ENTRIES}
    assert set(variants_dir().rglob("*.py")) == linked
    assert linked


def test_templates_name_triton_and_torch_only():
    allowed = {"torch", "triton", "math"}
    for path in variants_dir().rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert {a.name.partition(".")[0] for a in node.names} <= allowed, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] in allowed, path


def test_a_template_file_is_lf_and_utf_8():
    for path in variants_dir().rglob("*.py"):
        assert b"\r" not in Path(path).read_bytes()
