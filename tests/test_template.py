from __future__ import annotations

import re
from pathlib import Path

import pytest

from tuner.errors import TemplateError
from tuner.template import MAX_BYTES, load_template

GOOD = """\
import triton
import triton.language as tl


@triton.jit
def kernel(x, FLAG: tl.constexpr):
    pass


def launch(x, out, *, scale, FLAG, BLOCK, num_warps=4):
    kernel[(1,)](x, FLAG=FLAG)
"""


def load(tmp_path: Path, text: str | bytes):
    path = tmp_path / "kernel.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_template("softmax", "mine", path)


def test_a_template_knows_what_launch_takes_and_its_own_hash(tmp_path):
    template = load(tmp_path, GOOD)
    assert template.launch_parameters == ("scale", "FLAG", "BLOCK", "num_warps")
    assert template.launch_arguments == ("x", "out")
    assert (template.operator, template.name) == ("softmax", "mine")
    assert template.hash == load(tmp_path, GOOD).hash
    assert template.hash != load(tmp_path, GOOD + "# another\n").hash


def test_line_ends_and_a_byte_order_mark_do_not_change_a_template(tmp_path):
    windows = b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode()
    assert load(tmp_path, windows) == load(tmp_path, GOOD)


def test_a_template_is_never_imported(tmp_path):
    marker = tmp_path / "imported"
    load(tmp_path, GOOD + f"\nopen({str(marker)!r}, 'w')\n")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "def (:\n", r"kernel\.py:12: .*valid Python"),
        (GOOD.replace("@triton.jit\n", ""), r"kernel\.py:1: no function is decorated with @triton\.jit"),
        (GOOD.replace("def launch", "def start"), r"kernel\.py:1: no function launch\(\)"),
        (GOOD.replace("*, ", ""), r"kernel\.py:10: launch\(\) has no keyword-only parameters.*after a `\*`"),
        (GOOD.replace("num_warps=4", "**rest"), r"kernel\.py:10: launch\(\) takes \*args or \*\*kwargs"),
        (GOOD.replace("def launch", "async def launch"), r"kernel\.py:10: launch\(\) is async"),
        (GOOD + "\n\ndef launch(x, *, y):\n    pass\n", r"kernel\.py:14: launch\(\) is defined twice"),
        (b"# fine\n# \xff\n", r"kernel\.py:2: not UTF-8"),
        (b"#" * (MAX_BYTES + 1), r"kernel\.py: larger than"),
        (b"x = '\0'\n", r"kernel\.py:1: .*valid Python"),
        ("x = " + "(" * 500 + ")" * 500, r"kernel\.py:1: .*valid Python"),
    ],
)
def test_a_file_that_is_no_template_is_refused_with_file_and_line(tmp_path, text, message):
    with pytest.raises(TemplateError, match=message) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(TemplateError, match=re.escape(f"{tmp_path}: cannot be read: Is a directory")):
        load_template("softmax", "mine", tmp_path)
    with pytest.raises(TemplateError, match="No such file"):
        load_template("softmax", "mine", tmp_path / "absent.py")
