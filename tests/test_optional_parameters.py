"""Parameters with the default None go where a rendering does not read them, with what calls pass for them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tuner.rendering import render
from tuner.template import read_template

TEMPLATE = '''\
"""Adds what it is given."""

import triton
import triton.language as tl


@triton.jit
def _add(
    x,
    BIASED: tl.constexpr,
    bias=None,  # added where BIASED
):
    if BIASED:
        x += bias
    return x


@triton.jit
def kernel(
    x_ptr,
    BLOCK: tl.constexpr,
    BIASED: tl.constexpr,
    bias_ptr=None,  # one number
):
    lanes = tl.arange(0, BLOCK)
    if BIASED:
        bias = tl.load(bias_ptr)
    x = _add(
        tl.load(x_ptr + lanes),
        BIASED=BIASED, bias=bias if BIASED else None,
    )  # fmt: skip
    tl.store(x_ptr + lanes, x)


def launch(
    x,
    bias=None,  # one number
    *,
    BLOCK,
    BIASED,
    num_stages=None,
    num_warps,
):
    """Adds in place."""
    kernel[(1,)](
        x,
        BLOCK=BLOCK,
        BIASED=BIASED,
        bias_ptr=bias if BIASED else None,
        num_warps=num_warps,
    )
'''
WITHOUT = '''\
"""Adds what it is given."""

import triton
import triton.language as tl


@triton.jit
def _add(
    x,
):
    return x


@triton.jit
def kernel(
    x_ptr,
    BLOCK: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    x = _add(
        tl.load(x_ptr + lanes),
    )  # fmt: skip
    tl.store(x_ptr + lanes, x)


def launch(
    x,
    *,
    BLOCK,
    num_stages=None,
    num_warps,
):
    """Adds in place."""
    kernel[(1,)](
        x,
        BLOCK=BLOCK,
        num_warps=num_warps,
    )
'''


def rendered(source, **switches):
    return render(read_template("toy", "toy", Path("toy.py"), source), switches, "3.9.0").source


def parameters(source):
    return {f.name: [a.arg for a in f.args.args] for f in ast.parse(source).body if isinstance(f, ast.FunctionDef)}


def test_what_nothing_reads_is_gone_as_if_it_had_never_been_there():
    assert rendered(TEMPLATE, BIASED=False) == WITHOUT


def test_what_is_read_stays():
    source = rendered(TEMPLATE, BIASED=True)
    assert parameters(source) == {
        "_add": ["x", "bias"],
        "kernel": ["x_ptr", "BLOCK", "bias_ptr"],
        "launch": ["x", "bias"],
    }
    assert "bias_ptr=bias," in source and "bias=bias," in source


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ("bias=None,  # added where BIASED", "bias,", "_add"),  # no default: a caller must give it
        ("BIASED=BIASED, bias=bias if BIASED else None,", "BIASED=BIASED, **{},", "_add"),
        ("    x = _add(\n", "    other = _add\n    x = _add(\n", "_add"),
        ("    lanes = ", "    static = bias_ptr\n    lanes = ", "kernel"),
    ],
)
def test_what_a_call_may_pass_otherwise_or_something_reads_stays(before, after, left):
    assert TEMPLATE.count(before) == 1
    found = parameters(rendered(TEMPLATE.replace(before, after), BIASED=False))
    assert any("bias" in name for name in found[left])


def test_what_the_template_never_read_is_its_authors_business():
    source = (
        TEMPLATE.replace("    x_ptr,\n", "    x_ptr,\n    unused=None,\n")
        .replace("BLOCK: tl.constexpr,\n    BIASED", "BLOCK: tl.constexpr = 1,\n    BIASED")
        .replace("BIASED: tl.constexpr,\n    bias_ptr", "BIASED: tl.constexpr = False,\n    bias_ptr")
    )
    assert "unused" in parameters(rendered(source, BIASED=False))["kernel"]
