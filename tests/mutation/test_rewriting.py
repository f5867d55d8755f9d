"""Rewrites find their pattern whatever its layout, put the right thing in its place, and fail where it is gone."""

from __future__ import annotations

import pytest

from tests.mutation.rewriting import Change, NotFoundError, rewrite

SOURCE = '''\
def first(m, x):
    """What it does."""
    # A comment.
    l = (l*alpha) + tl.sum(p, axis=0)
    y = tl.load(x + m, mask=x < 3, other=0.0)
    return l


def second(m, x):
    l = l * alpha
    return l
'''


def changed(*changes: Change) -> list[str]:
    """The lines of the source that are new."""
    before = SOURCE.splitlines()
    return [line.strip() for line in rewrite(SOURCE, changes).splitlines() if line not in before]


def test_layout_and_needless_brackets_do_not_count():
    assert changed(Change("l * alpha", "l", function="first")) == ["l = l + tl.sum(p, axis=0)"]
    assert changed(Change("tl.sum( p,axis = 0 )", "s", function="first")) == ["l = (l*alpha) + s"]


def test_what_takes_a_place_keeps_its_own_brackets():
    assert changed(Change("l * alpha", "l - 1", which=1)) == ["l = (l - 1)"]
    assert changed(Change("x + any_m", "any_m * x")) == ["y = tl.load((m * x), mask=x < 3, other=0.0)"]


def test_a_wildcard_stands_for_any_expression_and_twice_for_the_same():
    assert changed(Change("any_x < any_n", "any_n < any_x")) == ["y = tl.load(x + m, mask=(3 < x), other=0.0)"]
    with pytest.raises(NotFoundError):
        rewrite(SOURCE, [Change("any_x < any_x", "any_x")])


def test_further_arguments_are_kept_as_they_are():
    assert changed(Change("tl.load(any_p, **any_more)", "tl.load(q, 1, **any_more)")) == [
        "y = tl.load(q, 1, mask=x < 3, other=0.0)"
    ]
    with pytest.raises(NotFoundError):
        rewrite(SOURCE, [Change("tl.load(any_p)", "q")])


def test_every_occurrence_changes_or_the_one_that_is_named():
    assert rewrite(SOURCE, [Change("alpha", "beta")]).count("beta") == 2
    assert changed(Change("alpha", "beta", which=1)) == ["l = l * beta"]
    assert changed(Change("alpha", "beta", function="second")) == ["l = l * beta"]


def test_a_statement_becomes_several_or_none():
    assert changed(Change("y = any_y", "y = 1\nz = any_y")) == ["y = 1", "z = tl.load(x + m, mask=x < 3, other=0.0)"]
    assert "y =" not in rewrite(SOURCE, [Change("y = any_y", "")])


def test_a_function_gets_a_new_start_behind_its_docstring():
    lines = rewrite(SOURCE, [Change("", "l = 0", function="first")]).splitlines()
    assert lines[1:3] == ['    """What it does."""', "    l = 0"]


@pytest.mark.parametrize(
    "change",
    [
        Change("l * beta", "l"),
        Change("l * alpha", "l", which=2),
        Change("l * alpha", "l", function="third"),
        Change("", "l = 0", function="third"),
        Change("l * alpha", "l * alpha"),
    ],
)
def test_a_pattern_that_is_gone_is_an_error(change):
    with pytest.raises(NotFoundError):
        rewrite(SOURCE, [change])
