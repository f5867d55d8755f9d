"""The rules of search spaces, read back from stored text and written as Python, against the spaces themselves."""

from __future__ import annotations

import pytest

from tests.exports.stored_winners import attention, softmax
from tuner.exports.rule_source import RuleSource, python
from tuner.exports.rules import given_names, read_rules
from tuner.exports.templating import fill
from tuner.expression import Expression
from tuner.space import load_space
from tuner.targets import target


@pytest.mark.parametrize("operator", ["softmax", "attention_fwd"])
def test_the_written_rules_say_what_the_search_space_says(operator):
    device = target("h200")
    problems = (
        [softmax(r, c) for r in (1, 64, 300) for c in (17, 1000, 8192, 40000)]
        if operator == "softmax"
        else [attention(q, d, causal=c) for q in (64, 1000) for d in (64, 80, 128) for c in (False, True)]
    )
    space = load_space(operator)
    text = space.path.read_text(encoding="utf-8")
    compared = 0
    for origin in problems[::2]:
        bound = space.bind(origin, device)
        for config in bound.plain():
            rules = read_rules(text, config.template)
            assert rules is not None
            written = function(RuleSource.of(rules, operator))
            for problem in problems:
                there = space.bind(problem, device)
                switches = dict(config.switches)
                chosen = {name: config.values[name] for name in config.chosen}
                valid = config.template in there.templates and there.is_valid(config.template, chosen)
                if any(
                    name in problem.settings and problem.settings[name] != origin.settings[name] for name in ("causal",)
                ):
                    valid = False  # the variant's source has it fixed
                moved = rules.config_at(config, problem, device)
                assert (moved is not None) is valid, (config.label, problem.label)
                values = {**given_names(problem, device), **{n: v for n, v in chosen.items() if n not in switches}}
                assert written(values, switches) is valid
                if moved is not None:
                    assert moved == there.config(config.template, chosen)
                    assert {name: values[name] for name, _ in moved.launch} == dict(moved.launch)
                compared += valid
    assert compared > 20


def function(source: RuleSource):
    names: dict[str, object] = {}
    exec(fill("python/_rules.py.j2", rules=[source]), names)
    return names[source.name]


def test_an_expression_is_written_with_its_names_looked_up():
    assert python(Expression.parse("max(rows, 4) if dtype == 'bf16' and not true else cdiv(cols, 2)")) == (
        "max(v['rows'], 4) if v['dtype'] == 'bf16' and (not True) else cdiv(v['cols'], 2)"
    )


def test_rules_that_cannot_be_read_leave_the_tuned_shapes_alone():
    assert read_rules("operator: [", "whole_row") is None
    assert read_rules("templates: {whole_row: {where: import os}}", "whole_row") is None
    assert read_rules("templates: {}", "whole_row") is None
