"""The part of a file that some of its names need: text that stands alone, and a hash of what it says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tuner.errors import TemplateError
from tuner.source_part import digest_of, holds_more, needed

SOURCE = '''\
"""A file with more in it than a kernel."""

import math
import os

import tuner

# The block.
BLOCK = 64
UNUSED = os.sep


def helper(x):
    return math.floor(x) * BLOCK


@decorated
def launch(x):
    # A comment inside.
    return helper(len(x))


def other():
    return UNUSED


operator = tuner.OwnOperator(reference=other)
'''


def test_what_a_name_needs_comes_along_with_its_comments_and_nothing_else():
    source = SOURCE.replace("@decorated\n", "")
    assert needed(source, ["launch"], Path("file.py")) == (
        "import math\n\n\n# The block.\nBLOCK = 64\n\n\ndef helper(x):\n    return math.floor(x) * BLOCK\n\n\n"
        "def launch(x):\n    # A comment inside.\n    return helper(len(x))\n"
    )


def test_comments_and_what_is_not_needed_leave_the_hash_and_the_rest_does_not():
    def of(*change: str) -> str:
        return digest_of(SOURCE.replace(*change) if change else SOURCE, ["operator"], Path("file.py"))

    same = of()
    assert len(same) == 64
    assert of("# The block.", "# Another comment.") == of("BLOCK = 64", "BLOCK = 128") == same
    assert of("def other():\n", "def other():\n\n    # why\n") == same
    assert of("return UNUSED", "return UNUSED * 2") != same and of("os.sep", "os.linesep") != same


def test_a_function_from_a_file_beside_it_comes_along_and_a_whole_module_cannot(tmp_path):
    path = tmp_path / "mine.py"
    (tmp_path / "kernels.py").write_text(
        "import math\n\nFACTOR = 2\n\n\ndef kernel(x):\n    return math.sqrt(x) * FACTOR\n"
    )
    source = "import math\nfrom kernels import kernel\n\n\ndef launch(x):\n    return kernel(math.ceil(x))\n"
    assert holds_more(ast.parse(source), path)
    text = needed(source, ["launch"], path)
    namespace: dict[str, object] = {}
    exec(text, namespace)
    assert namespace["launch"](15.5) == 8.0
    assert text.count("import math") == 1 and "from kernels" not in text
    for wrong, words in (
        (
            "import kernels\n\n\ndef launch(x):\n    return kernels.kernel(x)\n",
            "mine.py:1: a kernel cannot take the whole",
        ),
        (
            "from kernels import kernel as k\n\n\ndef launch(x):\n    return k(x)\n",
            "mine.py:1: write this import as `from",
        ),
    ):
        with pytest.raises(TemplateError) as error:
            needed(wrong, ["launch"], path)
        assert words in str(error.value)


def test_a_kernel_that_stands_alone_is_left_as_it_is(tmp_path):
    assert not holds_more(ast.parse("import torch\nimport triton\n"), tmp_path / "kernel.py")
    assert holds_more(ast.parse("from tuner import OwnOperator\n"), tmp_path / "kernel.py")


def test_a_name_that_nothing_binds_and_a_syntax_error_are_said_with_their_place():
    with pytest.raises(TemplateError, match=r"file.py:1: nothing at the top level is called launch; define it there"):
        needed("x = 1\n", ["launch"], Path("file.py"))
    with pytest.raises(TemplateError, match=r"file.py:2: .*; it must be valid Python"):
        needed("x = 1\ndef\n", ["launch"], Path("file.py"))
