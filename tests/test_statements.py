"""Statements that are shared by their text, and passes that are as if over the whole source."""

from __future__ import annotations

import libcst as cst
import pytest

from tests.test_variants_contract import ENTRIES, load
from tuner.statements import code, each, kept, parse_statements, trees

FIRST = """\
# what this is
import math

X = 1; Y = 2


@decorated(
    1,
)
def f(a):
    return a
    # the end of f


# above g
def g(b):
    return b
"""


def test_a_statement_of_the_same_text_is_the_same_node_and_another_is_not():
    before, after = parse_statements(FIRST), parse_statements(FIRST.replace("return b", "return b + 1"))
    assert len(before.body) == len(after.body) == 4
    # g begins under a comment of f's, which could as well be its own, and is never shared.
    assert [a is b for a, b in zip(before.body, after.body, strict=True)] == [True, True, True, False]


@pytest.mark.parametrize(
    "source",
    [
        FIRST,
        "",
        "\n",
        "# nothing\n",
        "x = 1",
        "x = 1\n# the end\n",
        "if x:\n  y\n  # inside\n# outside\nz\n",
        "def f():\n\tpass\n    # odd\nx = 1\n",
        "x = 1\r\ny = 2\r\n",
        "x = 1\n\n    # as if inside\ny = 2\n",
        "def f():\n    pass\n\n    # as if inside\ny = 2\n",
    ],
)
def test_what_was_parsed_before_changes_nothing(source):
    for before in (FIRST, "def f():\n  pass\n\ny = 2\n", "y = 2\n", "z\n"):
        parse_statements(before)
    module = parse_statements(source)
    assert code(module) == module.code == source
    assert module.deep_equals(cst.parse_module(source))


@pytest.mark.parametrize("entry", ENTRIES[::3], ids=[f"{o}-{n}" for o, n, _ in ENTRIES[::3]])
def test_the_sources_of_the_statements_are_the_source_of_the_module(entry):
    source = load(entry).source
    module = parse_statements(source)
    assert code(module) == source
    assert len(trees(module)) == len(module.body)


def test_a_pass_is_made_once_for_each_statement_and_leaves_a_module_as_it_is_where_nothing_changes():
    seen = []

    @kept
    def unchanged(statement):
        seen.append(statement)
        return statement

    module = parse_statements(FIRST)
    assert each(module, unchanged) is module and each(module, unchanged) is module
    assert seen == list(module.body)
