from __future__ import annotations

from textwrap import dedent

import libcst as cst
import pytest

from tuner.fold import fold


def folded(text: str) -> str:
    return fold(cst.parse_module(dedent(text))).code


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = a if True else b\n", "y = a\n"),
        ("y = (a + 1 if False else b + 2) * 3\n", "y = (b + 2) * 3\n"),
        ("y = (a if True else b)\n", "y = a\n"),
        ("y = not False\n", "y = True\n"),
        ("y = 4 > 2 and x\n", "y = x\n"),
        ("y = False and f()\n", "y = False\n"),
        ("y = x and False\n", "y = x and False\n"),  # x decides what y is
        ("y = x if z and False else w\n", "y = w\n"),
        ("y = x if f() and False else w\n", "y = x if f() and False else w\n"),  # f may have an effect
        ("y = x if f() and True else w\n", "y = x if f() else w\n"),
        ("y = x if not (z or True) else w\n", "y = w\n"),
        ("y = 'a' in ('a', 'b')\n", "y = True\n"),
        ("y = 2 * 3\n", "y = 2 * 3\n"),
        ("assert 2 > 1, 'fine'\nx = 1\n", "x = 1\n"),
        ("assert 2 < 1, 'not fine'\n", "assert False, 'not fine'\n"),
        ("tl.static_assert(4 in (4, 8))\nx = 1\n", "x = 1\n"),
        ("while False:\n    f()\nelse:\n    g()\n", "g()\n"),
        ("while True:\n    f()\n", "while True:\n    f()\n"),
        ("if True: x = 1  # why\n", "x = 1  # why\n"),
    ],
)
def test_constant_conditions_are_decided(before, after):
    assert folded(before) == after


def test_the_taken_branch_moves_out_with_its_comments():
    before = """\
        def f(x):
            # What the choice is about.
            if True:  # taken

                # Why this way.
                y = [
                    x,
                ]
                z = y
                # At the end of the branch.
            else:
                y = 2
            return y
        """
    after = """\
        def f(x):
            # What the choice is about.
            # taken
            # Why this way.
            y = [
                x,
            ]
            z = y
            # At the end of the branch.
            return y
        """
    assert folded(before) == dedent(after)


CHAIN = """\
    if {0}:
        a()
    # second
    elif {1}:
        b()
    elif {2}:
        c()
    else:
        d()
    """


@pytest.mark.parametrize(
    ("tests", "after"),
    [
        (("True", "y", "z"), "a()\n"),
        (("False", "True", "z"), "# second\nb()\n"),
        (("False", "False", "False"), "d()\n"),
        (("x", "True", "z"), "if x:\n    a()\n# second\nelse:\n    b()\n"),
        (("False", "y", "False"), "# second\nif y:\n    b()\nelse:\n    d()\n"),
        (("x", "False", "z"), "if x:\n    a()\nelif z:\n    c()\nelse:\n    d()\n"),
        (("x", "y", "True"), "if x:\n    a()\n# second\nelif y:\n    b()\nelse:\n    c()\n"),
    ],
)
def test_an_elif_chain_keeps_the_arms_that_can_be_taken(tests, after):
    assert folded(dedent(CHAIN).format(*tests)) == after


def test_nothing_follows_a_return_that_is_always_taken():
    before = "def f():\n    if True:\n        return 1\n    x = 2\n    return x\n"
    assert folded(before) == "def f():\n    return 1\n"


def test_a_block_that_loses_every_statement_gets_a_pass():
    assert folded("def f():\n    if False:\n        g()\n") == "def f():\n    pass\n"
    assert folded("for i in x:\n    if False:\n        g()\n") == "for i in x:\n    pass\n"


def test_an_if_that_is_left_empty_goes_where_its_test_has_no_effect():
    assert folded("if x < n:\n    if False:\n        g()\ny = 1\n") == "y = 1\n"
    assert folded("if f():\n    if False:\n        g()\n") == "if f():\n    pass\n"
    assert folded("if x:\n    a()\nelse:\n    if False:\n        g()\n") == "if x:\n    a()\n"


def test_paragraphs_stay_apart_where_a_statement_goes():
    assert folded("a = 1\n\nif False:\n    b = 2\nc = 3\n") == "a = 1\n\nc = 3\n"


def test_a_string_over_several_lines_keeps_its_text():
    before = 'if True:\n    x = """a\n      b\n"""\n'
    assert folded(before) == 'x = """a\n      b\n"""\n'


def test_folding_again_changes_nothing():
    once = folded(dedent(CHAIN).format("x and True", "False", "not False"))
    assert folded(once) == once
