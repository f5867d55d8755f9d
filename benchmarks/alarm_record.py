"""What was checked before: a file of JSON lines that grows with every result, and the totals over it.

A line says of one config of one problem how it ended, with what that depends on: the config, the rendered source, the
Triton version and the device. The check is no part of that: after a change to it begin a new file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tuner.problem import Problem
from tuner.trial import Outcome

PASSED, ALARM, NOT_COMPILABLE, LEFT = "passed", "alarms", "not compilable", "left"
_ENDS = {
    Outcome.TIMED: PASSED,
    Outcome.PRUNED: PASSED,
    Outcome.WRONG: ALARM,
    Outcome.COMPILE_ERROR: NOT_COMPILABLE,
    Outcome.OUT_OF_RESOURCES: NOT_COMPILABLE,
}


@dataclass(frozen=True)
class Subject:
    """What a verdict is of. ``problem`` is the problem's key, ``config`` the config's label, ``source`` a hash."""

    problem: str
    dtype: str
    config: str
    source: str
    triton: str
    device: str


class Record:
    """The lines of ``path``, and those that are added; in memory alone where it is None.

    Of several lines of one subject the last counts. Raises ``ValueError``, with the line, where a line but a last one
    that was cut off cannot be read, and ``OSError`` where the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._ends = path, dict[Subject, str]()
        if path is None:
            return
        path.touch()  # what cannot be written is said before anything is checked
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):  # the process was killed while it wrote
            lines.pop()
            path.write_text("".join(lines), encoding="utf-8")
        for number, line in enumerate(lines, 1):
            self._read(path, number, line)

    def _read(self, path: Path, number: int, line: str) -> None:
        try:
            found = json.loads(line)
            end = found.pop("end")
            self._ends[Subject(**found)] = end
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{path}:{number}: no line of a record: {error}; give a file that --record wrote"
            ) from None

    def add(self, subject: Subject, outcome: Outcome) -> None:
        """Write what came of ``subject``; nothing of a crash or a time-out, which is tried again."""
        end = _ENDS.get(outcome)
        if end is None:
            return
        self._ends[subject] = end
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**asdict(subject), "end": end}) + "\n")

    def end(self, subject: Subject) -> str:
        """``passed``, ``alarms``, ``not compilable``, or ``left`` where nothing is known."""
        return self._ends.get(subject, LEFT)

    def is_done(self, subject: Subject) -> bool:
        """Whether it need not be tried: it passed, or does not compile. What raised an alarm is looked at again."""
        return self.end(subject) in (PASSED, NOT_COMPILABLE)


class Totals:
    """How many configs ended in which way, by operator and dtype."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counter[str]] = {}

    def add(self, problem: Problem, ends: Iterable[str]) -> None:
        """Those of one problem."""
        self._counts.setdefault((problem.operator, problem.dtype), Counter()).update(ends)

    @property
    def counts(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """By (operator, dtype) and way."""
        return self._counts

    def table(self) -> str:
        """One line an operator and dtype in Markdown, and their sum."""
        ways = (PASSED, ALARM, NOT_COMPILABLE, LEFT)
        lines = [f"| operator | dtype | {' | '.join(ways)} |", "|" + "---|" * (2 + len(ways))]
        everything = Counter[str]()
        for (operator, dtype), counts in self._counts.items():
            everything.update(counts)
            lines.append(f"| {operator} | {dtype} | {' | '.join(str(counts[way]) for way in ways)} |")
        return "\n".join([*lines, f"| all | | {' | '.join(str(everything[way]) for way in ways)} |"])
