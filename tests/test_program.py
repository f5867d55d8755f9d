"""Two configs are one program where they compile to one binary and are checked for the same."""

from __future__ import annotations

from types import SimpleNamespace

from tuner.program import Program
from tuner.trial import CheckReport, CompileReport

BINARY = CompileReport("abc", (), 1.0)


def test_a_program_is_the_binary_and_what_it_is_checked_for():
    strict = SimpleNamespace(compile_report=BINARY, check_report=CheckReport((), 0, 0.1, promise="strict"))
    lax = SimpleNamespace(compile_report=BINARY, check_report=CheckReport((), 0, 0.1, promise="lax"))
    assert Program.of(strict) == Program("abc", "strict")
    assert Program.of(strict) != Program.of(lax)


def test_what_was_not_checked_promises_nothing_and_what_was_not_compiled_is_no_program():
    assert Program.of(SimpleNamespace(compile_report=BINARY, check_report=None)) == Program("abc", "")
    assert Program.of(SimpleNamespace(compile_report=None, check_report=None)) is None
