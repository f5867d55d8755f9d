"""Rendering a Gluon kernel: its partitions get the switches by position."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import TemplateError
from tuner.rendering import render
from tuner.template import Template, read_template

KERNEL = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def producer(buffers, FLAG: gl.constexpr, BLOCK: gl.constexpr):
    if FLAG:
        buffers.index(BLOCK)


@gluon.jit
def consumer(WHO: gl.constexpr, buffers, FLAG: gl.constexpr):
    if FLAG and WHO == 0:
        buffers.index(0)


@gluon.jit
def kernel(x, FLAG: gl.constexpr, BLOCK: gl.constexpr):
    buffers = (x, x)
    gl.warp_specialize(
        [
            (consumer, (0, buffers, FLAG)),
            (consumer, (1, buffers, FLAG)),
            (producer, (buffers, FLAG, BLOCK)),
        ],
        [4, 1],
        [240, 24],
    )


def launch(x, *, FLAG, BLOCK):
    kernel[(1,)](x, FLAG=FLAG, BLOCK=BLOCK)
"""

RENDERED = """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def producer(buffers, BLOCK: gl.constexpr):
    buffers.index(BLOCK)


@gluon.jit
def consumer(WHO: gl.constexpr, buffers):
    if WHO == 0:
        buffers.index(0)


@gluon.jit
def kernel(x, BLOCK: gl.constexpr):
    buffers = (x, x)
    gl.warp_specialize(
        [
            (consumer, (0, buffers)),
            (consumer, (1, buffers)),
            (producer, (buffers, BLOCK)),
        ],
        [4, 1],
        [240, 24],
    )


def launch(x, *, BLOCK):
    kernel[(1,)](x, BLOCK=BLOCK)
"""


def template(source: str) -> Template:
    return read_template("softmax", "small", Path("small.py"), source)


def test_a_switch_goes_from_partitions_and_from_what_they_are_given():
    assert render(template(KERNEL), {"FLAG": True}, "3.6.0").source == RENDERED


def test_a_partition_that_is_given_another_literal_keeps_its_parameter():
    source = KERNEL.replace("(1, buffers, FLAG)", "(1, buffers, False)")
    mixed = render(template(source), {"FLAG": True}, "3.6.0").source
    assert "def consumer(WHO: gl.constexpr, buffers, FLAG: gl.constexpr):\n    if FLAG and WHO == 0:\n" in mixed
    assert "(consumer, (0, buffers, True)),\n            (consumer, (1, buffers, False)),\n" in mixed
    assert "(producer, (buffers, BLOCK))" in mixed


def test_a_partition_of_one_argument_is_still_given_a_tuple():
    source = KERNEL.replace("(producer, (buffers, FLAG, BLOCK))", "(producer, (buffers, FLAG))").replace(
        "def producer(buffers, FLAG: gl.constexpr, BLOCK: gl.constexpr)", "def producer(buffers, FLAG: gl.constexpr)"
    )
    assert "(producer, (buffers,)),\n" in render(template(source), {"FLAG": False}, "3.6.0").source


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("(1, buffers)", r"small\.py:23: consumer\(\) is called without FLAG; put FLAG into the partition"),
        ("(1, *buffers)", r"small\.py:23: FLAG may be hidden in a \* or \*\* argument; write the partition"),
    ],
)
def test_a_partition_that_is_not_given_the_switch_is_refused_with_its_line(given, message):
    with pytest.raises(TemplateError, match=message):
        render(template(KERNEL.replace("(1, buffers, FLAG)", given)), {"FLAG": True}, "3.6.0")


def test_gluon_is_refused_for_a_triton_that_has_none():
    with pytest.raises(TemplateError, match=r"small\.py:1: triton\.experimental\.gluon needs Triton 3\.6, but .* 3\.5"):
        render(template(KERNEL), {"FLAG": True}, "3.5.1")
