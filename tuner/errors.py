"""Every error that this package raises on purpose.

::

    TunerError                       exit code
    ├── UsageError            2      the command or call cannot mean anything
    │   ├── ProblemError      2      unknown operator, shape parameter, dtype or option
    │   ├── ConfigError       2      a config that its search space does not contain
    │   ├── SpaceError        2      a search space (or problems file) that is not valid; says file, line, key
    │   ├── ExpressionError   2      an expression in a search space that cannot be read or evaluated
    │   ├── TemplateError     2      a template that cannot be read or rendered
    │   ├── TargetError       2      a target or device name that nobody knows
    │   ├── AutotuneError     2      @tuner.autotune was told, or given, what does not fit the kernel
    │   └── NoWinnerError     1      no winner is stored, or only an estimated one
    ├── StoreError            2      the database cannot be used; it was left as it was
    │   └── OlderSchemaError  2      it has an older schema, and nothing may be written
    ├── MissingError          2      what the machine lacks: a GPU, Triton, a compiler
    └── StudyFailedError      1      the study ran, and no config survived it

A message says what was wrong, where, and what to do; the command line prints it on one line.
"""

from __future__ import annotations


class TunerError(Exception):
    """The root. ``exit_code`` is what the command line exits with."""

    exit_code = 2


class UsageError(TunerError):
    """The command or call cannot mean anything as given."""


class ProblemError(UsageError, ValueError):
    """A problem names an unknown operator, shape parameter, dtype or option, or a value out of range."""


class ConfigError(UsageError, ValueError):
    """A config does not belong to the search space that it is used with."""


class ExpressionError(UsageError, ValueError):
    """An expression of a search space cannot be read, or cannot be evaluated with the names it has."""


class TemplateError(UsageError, ValueError):
    """A template cannot be read, lacks its contract, or cannot be rendered."""


class TargetError(UsageError, ValueError):
    """A target or device name is not known."""


class AutotuneError(UsageError, ValueError):
    """What ``@tuner.autotune`` was told does not fit the kernel, or a call's arguments do not fit what it was told."""


class NoWinnerError(UsageError):
    """No winner is stored for a problem, or only an estimated one, which was not asked for."""

    exit_code = 1


class SpaceError(UsageError, ValueError):
    """A YAML file is not a valid search space or problems file.

    ``path``, ``line`` (1-based, 0 when unknown) and ``key`` say where.
    """

    def __init__(self, path: object, line: int, key: str, problem: str, remedy: str = "") -> None:
        self.path = str(path)
        self.line = line
        self.key = key
        self.problem = problem
        self.remedy = remedy
        where = f"{self.path}:{line}" if line else self.path
        text = f"{where}: {key}: {problem}" if key else f"{where}: {problem}"
        super().__init__(f"{text}; {remedy}" if remedy else text)


class CheckError(TunerError):
    """A check cannot be made, or could not tell a wrong kernel from a right one."""


class StoreError(TunerError):
    """The database cannot be opened, read or written. It was left as it was."""


class OlderSchemaError(StoreError):
    """The database was written by an older version of this program, and was to be opened without writing."""


class MissingError(TunerError):
    """The machine lacks what was asked for (a GPU, Triton, a compiler)."""


class KernelFailedError(TunerError):
    """A kernel was compiled or run, and that failed: it crashed, hangs, or does not fit. An answer, as wrong is one."""

    exit_code = 1


class StudyFailedError(TunerError):
    """The study ran to its end, and no config survived the funnel."""

    exit_code = 1
