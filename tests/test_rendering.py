from __future__ import annotations

from pathlib import Path

import pytest

from tests.templates import SOFTMAX
from tuner.errors import TemplateError
from tuner.rendering import render, spaced
from tuner.template import Template, read_template

HEADER = "import triton\nimport triton.language as tl\n\n\n"


def template(source: str) -> Template:
    return read_template("softmax", "small", Path("small.py"), source)


def body(text: str, *, parameters: str = "FLAG", arguments: str = "FLAG=FLAG", extra: str = "") -> Template:
    """A template whose kernel does ``text`` (from line 7 on), with ``launch`` below it."""
    return template(
        f"{HEADER}@triton.jit\ndef kernel(x, {parameters}: tl.constexpr):\n    {text}\n\n\n{extra}"
        f"def launch(x, *, FLAG, BLOCK):\n    kernel[(1,)](x, {arguments})\n"
    )


GOLDEN = '''\
"""Softmax of one row a program, the whole row in one block."""

import math

import triton
import triton.language as tl


@triton.jit
def exponential(x):
    y = tl.exp2(x * 1.4426950408889634)
    return y


@triton.jit
def softmax_kernel(
    x_ptr,  # [rows, cols]
    out_ptr,  # [rows, cols]
    cols,  # at most BLOCK
    BLOCK: tl.constexpr,
):
    # Which row this is.
    row = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + lanes, mask=lanes < cols, other=float("-inf")).to(tl.float32)
    p = exponential(x - tl.max(x, axis=0))
    l = tl.sum(p, axis=0)
    # One division an element.
    y = p / l
    tl.store(out_ptr + row * cols + lanes, y.to(out_ptr.dtype.element_ty), mask=lanes < cols)


def launch(x, out, *, BLOCK, num_warps):
    """Write the softmax of ``x`` [rows, cols] into ``out``."""
    rows = math.prod(x.shape[:-1])
    assert x.dtype == out.dtype
    softmax_kernel[(rows,)](x, out, x.shape[-1], BLOCK=BLOCK, num_warps=num_warps)
'''


def test_a_rendering_has_no_switch_and_nothing_that_only_the_other_branches_used():
    variant = render(template(SOFTMAX), {"USE_EXP2": True, "DIVIDE": True}, "3.6.0")
    assert variant.source == GOLDEN
    assert variant.exp2 == "tl.exp2"
    assert variant.switches == (("DIVIDE", True), ("USE_EXP2", True))
    assert variant.template_hash == template(SOFTMAX).hash


def test_a_rendering_keeps_what_its_own_branch_uses():
    variant = render(template(SOFTMAX), {"USE_EXP2": False, "DIVIDE": False}, "3.6.0")
    assert "import torch\n" in variant.source
    assert "def reciprocal(x):" in variant.source
    assert "# One division a row.\n    y = p * reciprocal(l)" in variant.source
    assert variant.exp2 == "none"


def test_the_order_of_the_switches_does_not_matter_and_their_type_does():
    a = render(template(SOFTMAX), {"USE_EXP2": True, "DIVIDE": False}, None)
    b = render(template(SOFTMAX), {"DIVIDE": False, "USE_EXP2": True}, None)
    assert a == b
    one = render(body("x + FLAG"), {"FLAG": 1}, None)
    true = render(body("x + FLAG"), {"FLAG": True}, None)
    assert "x + 1" in one.source and "x + True" in true.source


def test_without_switches_a_rendering_is_the_template():
    variant = render(template(SOFTMAX), {}, "3.6.0")
    assert variant.source == SOFTMAX


def test_trailing_space_and_runs_of_blank_lines_go():
    source = SOFTMAX.replace("\n\n\ndef launch", "\n\n\n\n\n   \ndef launch").replace("p / l", "p / l  ")
    assert render(template(source), {}, "3.6.0").source == SOFTMAX


def test_an_older_triton_gets_its_own_spelling():
    variant = render(template(SOFTMAX), {"USE_EXP2": True, "DIVIDE": True}, "2.1.0")
    assert variant.source == GOLDEN.replace("tl.exp2", "tl.math.exp2")
    assert variant.exp2 == "tl.math.exp2"


SHIM = """
# The base-2 exponential is tl.exp2 from Triton 3.0, and tl.math.exp2 in 2.1 to 2.3.
if hasattr(tl, "exp2"):

    @triton.jit
    def exp2(x):
        return tl.exp2(x)
else:

    @triton.jit
    def exp2(x):
        return tl.math.exp2(x)
"""


def test_a_rendering_for_an_unknown_version_carries_a_shim():
    variant = render(template(SOFTMAX), {"USE_EXP2": True, "DIVIDE": True}, None)
    shimmed = GOLDEN.replace("tl.exp2", "exp2").replace(
        "import triton.language as tl\n", "import triton.language as tl\n" + SHIM
    )
    assert variant.source == shimmed
    assert variant.exp2 == "shim"


def test_a_shim_is_resolved_again_once_the_version_is_known():
    shimmed = render(template(SOFTMAX), {"USE_EXP2": True, "DIVIDE": True}, None)
    assert render(template(shimmed.source), {}, None).source == shimmed.source
    assert render(template(shimmed.source), {}, "3.9.0").source == GOLDEN


def test_a_shim_does_not_take_a_name_that_is_taken():
    with pytest.raises(TemplateError, match=r"small\.py:1: the name exp2 is taken"):
        render(body("exp2 = tl.exp2(x)"), {"FLAG": True}, None)


@pytest.mark.parametrize(
    ("version", "loop"),
    [
        ("2.1", "for i in range(0, x, 2):"),
        ("3.0.0", "for i in tl.range(0, x, 2, num_stages=2):"),
        ("3.3.1", "for i in tl.range(0, x, 2, num_stages=2, flatten=False):"),
        ("3.4.0", "for i in tl.range(0, x, 2, num_stages=2, flatten=False, warp_specialize=True):"),
    ],
)
def test_hints_that_a_version_lacks_are_dropped(version, loop):
    text = "for i in tl.range(0, x, 2, num_stages=2, flatten=False, warp_specialize=FLAG): pass"
    assert loop in render(body(text), {"FLAG": True}, version).source


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("tl.log2(x)", "tl.math.log2(x)"),
        ("tl.cast(x, tl.int64)", "x.to(tl.int64)"),
        ("tl.cast(x + 1, tl.int64)", "(x + 1).to(tl.int64)"),
        ("tl.exp(x)", "tl.exp(x)"),
    ],
)
def test_what_triton_2_spells_otherwise_is_spelt_so(text, rendered):
    assert f"    {rendered}\n" in render(body(text), {"FLAG": True}, "2.1").source


def test_what_a_version_cannot_express_is_refused():
    message = r"small\.py:7: tl\.make_tensor_descriptor needs Triton 3\.4, but the rendering is for 3\.2\.0"
    descriptor = body("tl.make_tensor_descriptor(x)")
    with pytest.raises(TemplateError, match=message):
        render(descriptor, {"FLAG": True}, "3.2.0")
    assert render(descriptor, {"FLAG": True}, "3.4.0").source
    imported = template(
        descriptor.source.replace("\n\n\n", "\nfrom triton.tools.tensor_descriptor import TensorDescriptor\n\n\n", 1)
        + "    TensorDescriptor(x)\n"
    )
    with pytest.raises(TemplateError, match=r"small\.py:3: triton\.tools\.tensor_descriptor needs Triton 3\.4"):
        render(imported, {"FLAG": True}, "3.2.0")


def test_an_import_of_a_dead_branch_needs_no_version():
    source = (
        "import triton\nimport triton.language as tl\nfrom triton.tools.tensor_descriptor import TensorDescriptor\n\n\n"
        "@triton.jit\ndef kernel(x):\n    pass\n\n\n"
        "def launch(x, *, FLAG, BLOCK):\n    if FLAG:\n        x = TensorDescriptor(x)\n    kernel[(1,)](x)\n"
    )
    variant = render(template(source), {"FLAG": False}, "2.1")
    assert "TensorDescriptor" not in variant.source
    with pytest.raises(TemplateError, match=r"needs Triton 3\.4"):
        render(template(source), {"FLAG": True}, "2.1")


def test_a_switch_that_launch_does_not_take_is_refused():
    with pytest.raises(
        TemplateError, match=r"small\.py:10: launch\(\) has no keyword-only parameter FLAGS; .*FLAG, BLOCK"
    ):
        render(body("pass"), {"FLAGS": True}, None)


def test_a_switch_without_a_literal_is_refused():
    with pytest.raises(TemplateError, match="the switch FLAG: inf has no literal"):
        render(body("pass"), {"FLAG": float("inf")}, None)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (body("pass", arguments="FLAG"), r"small\.py:11: FLAG is passed by position; write `FLAG=FLAG`"),
        (body("pass", arguments="*[FLAG]"), r"small\.py:11: FLAG may be hidden in a \* or \*\* argument"),
        (body("pass", arguments="**dict(FLAG=FLAG)"), r"small\.py:11: FLAG may be hidden in a \* or \*\* argument"),
        (body("pass", arguments=""), r"small\.py:11: kernel\(\) is called without FLAG; pass `FLAG=FLAG`"),
        (body("FLAG = 1"), r"small\.py:7: the switch FLAG is assigned to; use another name"),
        (body("for FLAG in range(2): pass"), r"small\.py:7: the switch FLAG is assigned to"),
        (body("(FLAG := 2)"), r"small\.py:7: the switch FLAG is assigned to"),
        (body("f = lambda FLAG: FLAG"), r"small\.py:7: an inner function has a parameter named as the switch FLAG"),
        (
            body("x", parameters="OTHER", arguments="OTHER=FLAG", extra="FLAG = 3\n\n\n"),
            r"small\.py:10: .* assigned to",
        ),
        (
            body("FLAG", parameters="OTHER", arguments="OTHER=FLAG"),
            r"small\.py:7: kernel\(\) uses the switch FLAG without",
        ),
        (body('x["FLAG"]'), r"small\.py:7: the switch FLAG is named in a string"),
        (
            template(body("pass").source.replace("triton.jit", 'triton.jit(do_not_specialize=["FLAG"])')),
            r"small\.py:5: the switch FLAG is named in a string",
        ),
        (
            body("pass", arguments="FLAG=FLAG)\n    fn = kernel\n    fn[(1,)](x, FLAG=not FLAG"),
            r"small\.py:13: fn\(\) gets another value for the switch FLAG",
        ),
    ],
)
def test_a_use_that_cannot_be_fixed_is_refused_with_its_line(made, message):
    with pytest.raises(TemplateError, match=message) as caught:
        render(made, {"FLAG": True}, None)
    assert "\n" not in str(caught.value)


def test_a_kernel_may_go_by_another_name_in_launch():
    made = body("x + FLAG", arguments="FLAG=FLAG)\n    fn = kernel[(1,)]\n    fn(x, FLAG=FLAG")
    assert render(made, {"FLAG": 4}, None).source.endswith("kernel[(1,)](x)\n    fn = kernel[(1,)]\n    fn(x)\n")


def test_a_helper_that_some_call_gives_another_literal_keeps_its_parameter():
    source = (
        f"{HEADER}@triton.jit\ndef helper(x, FLAG: tl.constexpr):\n    if FLAG:\n        x += 1\n    return x\n\n\n"
        "@triton.jit\ndef kernel(x, FLAG: tl.constexpr):\n    helper(x, FLAG=FLAG)\n    helper(x, FLAG=False)\n\n\n"
        "def launch(x, *, FLAG, BLOCK):\n    kernel[(1,)](x, FLAG=FLAG)\n"
    )
    mixed = render(template(source), {"FLAG": True}, None).source
    assert "def helper(x, FLAG: tl.constexpr):\n    if FLAG:\n" in mixed
    assert "def kernel(x):\n    helper(x, FLAG=True)\n    helper(x, FLAG=False)\n" in mixed
    alike = render(template(source), {"FLAG": False}, None).source
    assert "def helper(x):\n    return x\n" in alike
    assert "def kernel(x):\n    helper(x)\n    helper(x)\n" in alike


def test_a_keyword_of_another_library_keeps_its_name():
    made = body("tl.dot(x, x, FLAG=FLAG)")
    assert "tl.dot(x, x, FLAG=False)" in render(made, {"FLAG": False}, None).source


def test_a_negative_switch_is_written_in_parentheses():
    assert "x ** (-2)" in render(body("x ** FLAG"), {"FLAG": -2}, None).source


def test_a_constant_of_switches_alone_stays_a_constant():
    made = body("HALF: tl.constexpr = FLAG // 2\n    x + HALF")
    assert "    HALF: tl.constexpr = 8 // 2\n    x + HALF\n" in render(made, {"FLAG": 8}, None).source


def test_a_local_constant_goes_with_its_last_use():
    made = body("LOG2E: tl.constexpr = 1.44\n    if FLAG:\n        x *= LOG2E\n    x += 1")
    assert "tl.constexpr):\n" not in render(made, {"FLAG": False}, None).source
    assert "LOG2E" not in render(made, {"FLAG": False}, None).source
    assert "    LOG2E: tl.constexpr = 1.44\n    x *= LOG2E\n" in render(made, {"FLAG": True}, None).source


def test_arguments_packed_on_lines_keep_their_lines():
    made = body(
        "pass", arguments="\n        x,\n        1, FLAG=FLAG,\n        BLOCK=BLOCK, FLAG2=2,\n    ", parameters="FLAG"
    )
    made = template(made.source.replace("def kernel(x, FLAG", "def kernel(x, a, b, BLOCK, FLAG2, FLAG"))
    assert "(x, \n        x,\n        1,\n        BLOCK=BLOCK, FLAG2=2,\n    )" in render(
        made, {"FLAG": 1}, None
    ).source.replace("(x,\n", "(x, \n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return(x)\n", "return (x)\n"),
        ("y = (x)if(z)else(w)\n", "y = (x) if (z) else (w)\n"),
        ("y = not[1]\n", "y = not [1]\n"),
        ("y = f(x)[0]\n", "y = f(x)[0]\n"),
        ("y = lambda: (0)\n", "y = lambda: (0)\n"),
        ("y = 'a'in'ab'\n", "y = 'a' in 'ab'\n"),
    ],
)
def test_keywords_are_set_apart_from_brackets(before, after):
    assert spaced(before) == after
