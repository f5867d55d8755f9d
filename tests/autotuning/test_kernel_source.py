"""What a kernel is known by, and which of its arguments it writes, read off its source."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import triton

from tests.autotuning import kernels
from tuner.autotuning.kernel_source import read_kernel_source
from tuner.autotuning.written import keyword_values, mentions, written_arguments
from tuner.loading import load_source

HEAD = "import triton\nimport triton.language as tl\nimport helpers\n"
BODY = """
SCALE = tl.constexpr(2)

@triton.jit
def helper(p, v):
    tl.store(p, v * SCALE)

@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    {line}

def launch():
    pass
"""


def source_of(folder: Path, name: str, line: str, *, above: str = "", scale: int = 2, factor: str = "SCALE"):
    body = BODY.format(line=line).replace("constexpr(2)", f"constexpr({scale})").replace("v * SCALE", f"v * {factor}")
    path = folder / f"{name}.py"
    path.write_text(HEAD.replace("import helpers\n", "") + above + textwrap.dedent(body))
    return read_kernel_source(load_source(path).kernel)


def test_a_kernel_is_known_by_its_text_its_helpers_and_the_values_it_uses(tmp_path):
    line = "helper(x_ptr + at, 1.0)"
    base = source_of(tmp_path, "base", line)
    assert "def kernel(x_ptr" in base.text and "def helper(p, v)" in base.text and "# SCALE = constexpr[2]" in base.text
    assert source_of(tmp_path, "moved", line, above="# a line\n\n\n").key == base.key
    others = [
        source_of(tmp_path, "line", "helper(x_ptr + at, 2.0)"),
        source_of(tmp_path, "value", line, scale=3),
        source_of(tmp_path, "callee", line, factor="SCALE + 0"),
    ]
    assert len({base.key, *(other.key for other in others)}) == 4


def test_the_key_is_the_same_in_every_process_and_without_decorators():
    tuned = triton.heuristics({"EVEN": lambda args: True})(kernels.through_helper)
    source = read_kernel_source(tuned)
    assert source.key == read_kernel_source(kernels.through_helper).key
    assert "@" not in source.text and " at 0x" not in source.text
    assert [f.name for f in source.functions] == ["through_helper", "_keep"] and source.obstacle == ""


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("tl.store(x_ptr + at, tl.load(y_ptr + at))", {"x_ptr"}),
        ("tl.store(value=tl.load(y_ptr), pointer=x_ptr)", {"x_ptr", "y_ptr"}),
        ("tl.atomic_add(z_ptr, 1.0)", {"z_ptr"}),
        ("helper(y_ptr + at, tl.load(x_ptr + at))", {"y_ptr"}),
        ("helper(v=tl.load(x_ptr), p=y_ptr)", {"y_ptr"}),
        ("helper(*(x_ptr, 1.0))", {"x_ptr"}),
        ("p = z_ptr + at; q = p; q += 4; tl.store(q, 1.0)", {"z_ptr"}),
        ("for i in range(3): x_ptr += 1; tl.store(x_ptr, 0.0)", {"x_ptr"}),
        ("d = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,)); tl.store(d, at)", {"x_ptr", "n", "BLOCK"}),
        ("d = tl.make_tensor_descriptor(y_ptr, [n], [1], [BLOCK]); d.store([0], at)", {"y_ptr", "n", "BLOCK"}),
        ("tl.inline_asm_elementwise('st', '=r', [x_ptr], tl.int32, False, 1)", {"x_ptr"}),
        ("unknown(z_ptr)", {"z_ptr"}),
        ("a = tl.load(x_ptr + at).to(tl.float32); b = tl.sum(a, 0)", set()),
        ("b = tl.where(at < min(n, 3), x_ptr + at, y_ptr + at); tl.store(b, 0)", {"x_ptr", "y_ptr", "n", "BLOCK"}),
    ],
)
def test_what_may_be_written_is_found_and_what_is_only_read_is_not(tmp_path, line, written):
    source = source_of(tmp_path, "k", line)
    assert {"x_ptr", "y_ptr", "z_ptr"} & written_arguments(source) == {"x_ptr", "y_ptr", "z_ptr"} & written


def test_the_kernels_of_these_tests_write_what_they_say():
    assert "x_ptr" in written_arguments(read_kernel_source(kernels.twice))
    assert {"x_ptr", "y_ptr"}.isdisjoint(written_arguments(read_kernel_source(kernels.add)))
    assert "total_ptr" in written_arguments(read_kernel_source(kernels.totals))
    assert "out_ptr" in written_arguments(read_kernel_source(kernels.through_helper))


def test_calls_and_their_literals_are_found_in_helpers_too(tmp_path):
    source = source_of(tmp_path, "dots", "helper(x_ptr, tl.dot(at, at, input_precision='ieee') + tl.dot(at, at))")
    assert mentions(source, "dot") and mentions(source, "store") and not mentions(source, "exp")
    assert keyword_values(source, "dot", "input_precision") == {"ieee", ""}


def test_what_is_reached_through_packages_counts_and_a_value_there_keeps_it_in_this_process(tmp_path, monkeypatch):
    package = tmp_path / "own_package_c"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text(
        "import triton\nimport triton.language as tl\nGAIN = 2\n@triton.jit\ndef stored(p, v):\n    tl.store(p, v)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    head = "import own_package_c.inner\n"
    called = source_of(tmp_path, "called", "own_package_c.inner.stored(x_ptr, 1.0)", above=head)
    assert [f.name for f in called.functions] == ["kernel", "stored"] and called.obstacle == ""
    assert "tl.store(p, v)" in called.text
    read = source_of(tmp_path, "read", "tl.store(x_ptr, own_package_c.inner.GAIN)", above=head)
    assert read.obstacle == "it reads own_package_c.inner.GAIN, which a program may change"
    assert source_of(tmp_path, "library", "tl.store(x_ptr, tl.constexpr(1))").obstacle == ""
