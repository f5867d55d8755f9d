from __future__ import annotations

import pytest

from tuner.errors import TemplateError
from tuner.exp2 import exp2_spelling, parse_version


@pytest.mark.parametrize(
    ("version", "spelling"),
    [
        ("2.1", "tl.math.exp2"),
        ("2.1.0", "tl.math.exp2"),
        ("2.3.1", "tl.math.exp2"),
        ("3.0.0", "tl.exp2"),
        ("3.9.0", "tl.exp2"),
        ("3.10.0+git1234", "tl.exp2"),
        ("4.0", "tl.exp2"),
        (None, "shim"),
    ],
)
def test_the_exponential_is_spelt_as_the_version_has_it(version, spelling):
    assert exp2_spelling(version) == spelling


@pytest.mark.parametrize("version", ["2.0.0", "1.1"])
def test_below_2_1_there_is_no_base_2_exponential(version):
    with pytest.raises(TemplateError, match=f"Triton {version} has no base-2 exponential"):
        exp2_spelling(version)


@pytest.mark.parametrize("text", ["", "3", "three", "3.x", "latest", "3.0;import os"])
def test_what_is_no_version_is_refused(text):
    with pytest.raises(TemplateError, match="is not a Triton version"):
        parse_version(text)
