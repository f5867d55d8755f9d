"""A rendering with its switches fixed does what its template does with them passed; plain Python is the kernel."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from textwrap import indent

from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.rendering import render
from tuner.template import read_template

CHOICES = {"FAST": [False, True], "STAGES": [-1, 0, 1, 2], "ORDER": ["up", "down"]}

switch_tests = st.sampled_from(
    [
        "FAST",
        "not FAST",
        "STAGES",
        "STAGES == 2",
        "STAGES > 0",
        "0 <= STAGES < 2",
        "STAGES in (0, 2)",
        "STAGES * 2 > 2",
        "-STAGES == 1",
        'ORDER == "up"',
        'ORDER != "down" and FAST',
        "STAGES is None",
        "True",
    ]
)
run_time_tests = st.sampled_from(["x > 3", "seen(x)", "x % 2 == 0"])
tests = st.recursive(
    st.one_of(switch_tests, run_time_tests),
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("(({})if({})else({}))".format, inner, inner, inner),
    ),
    max_leaves=4,
)
values = st.one_of(
    st.sampled_from(["x + 1", "STAGES", "x - STAGES", "x * STAGES ** 2", "k", "len(ORDER)"]),
    st.builds("(x + 1 if {} else x * 3)".format, tests),
    st.builds("({} and x)".format, tests),
    st.builds("({} or 5)".format, tests),
    st.builds("helper(x, FAST=FAST, STAGES=STAGES, ORDER=ORDER)".format),
    st.builds("helper(x, FAST={}, STAGES=STAGES, ORDER=ORDER)".format, st.sampled_from(["True", "False"])),
    st.builds("helper(x, STAGES=1, FAST=FAST, ORDER={},)".format, st.sampled_from(['"up"', "ORDER"])),
)
simple = st.one_of(
    st.builds("seen({})".format, values),
    st.builds("x = {}".format, values),
    st.builds("k = {}".format, st.integers(0, 9)),
    st.builds("assert {} or True".format, switch_tests),
    st.sampled_from(["return x", "pass", "# a comment\npass", "\nseen(k)  # why"]),
)


def block(statements: list[str]) -> str:
    return indent("\n".join(statements), "    ")


def if_chain(arms: list[tuple[str, list[str]]], otherwise: list[str] | None) -> str:
    words = ["if", *["elif"] * (len(arms) - 1)]
    text = "\n".join(f"{word} {test}:\n{block(body)}" for word, (test, body) in zip(words, arms, strict=True))
    return text if otherwise is None else f"{text}\nelse:\n{block(otherwise)}"


def loop(test: str, body: list[str], leave: str) -> str:
    return f"for i in range(3):\n{block([*body, f'if {test}:', '    ' + leave, 'seen(i)'])}"


def bodies(statement: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(statement, min_size=1, max_size=3)


statements = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(
            if_chain,
            st.lists(st.tuples(tests, bodies(inner)), min_size=1, max_size=3),
            st.one_of(st.none(), bodies(inner)),
        ),
        st.builds(loop, tests, bodies(inner), st.sampled_from(["break", "continue"])),
    ),
    max_leaves=8,
)

SOURCE = '''\
"""A template."""


@triton.jit
def helper(x, FAST: tl.constexpr, STAGES: tl.constexpr = 0, *, ORDER="up"):
    k = 1
    if FAST:
        return (x if ORDER == "up" else -x) + k
    return STAGES


@triton.jit
def kernel(
    x,  # where it starts
    k,
    FAST: tl.constexpr,  # one
    STAGES: tl.constexpr,
    ORDER: tl.constexpr,  # another
):
{body}
    return (x, k)


def launch(x, *, FAST, STAGES, ORDER, k):
    return kernel(
        x,
        k,
        FAST=FAST, STAGES=STAGES,
        ORDER=ORDER,
    )
'''


class Triton:
    constexpr = int

    @staticmethod
    def jit(function):
        return function


def run(source: str, **arguments):
    """What launch() returns or raises, and what it saw on the way, in order."""
    trace: list[object] = []

    def seen(value):
        trace.append(value)
        return value

    namespace = {"triton": Triton, "tl": Triton, "seen": seen}
    exec(compile(source, "rendered", "exec"), namespace)
    try:
        return namespace["launch"](**arguments), trace
    except ZeroDivisionError as error:
        return type(error), trace


@settings(max_examples=150, deadline=None)
@given(bodies(statements), st.tuples(*(st.sampled_from(c) for c in CHOICES.values())), st.integers(-2, 6))
def test_a_rendering_does_what_its_template_does_with_the_switches_passed(body, chosen, x):
    template = read_template("softmax", "generated", Path("generated.py"), SOURCE.replace("{body}", block(body)))
    switches = dict(zip(CHOICES, chosen, strict=True))

    variant = render(template, switches, "3.6.0")

    assert run(variant.source, x=x, k=7) == run(template.source, x=x, k=7, **switches)
    kernel = next(n for n in ast.parse(variant.source).body if isinstance(n, ast.FunctionDef) and n.name == "kernel")
    assert [a.arg for a in kernel.args.args] == ["x", "k"]
    assert not [n for n in ast.walk(kernel) if isinstance(n, ast.Name) and n.id in CHOICES]
    assert not [line for line in variant.source.splitlines() if line != line.rstrip()]
    assert render(dataclasses.replace(template, source=variant.source), {}, "3.6.0").source == variant.source
