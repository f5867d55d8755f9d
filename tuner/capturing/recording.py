"""Counts what was seen. Values; nothing of torch."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tuner.problem import Problem


@dataclass(frozen=True)
class CapturedProblem:
    """A problem, how often it ran, and what of the calls it does not hold (strides, for one); empty for nothing."""

    problem: Problem
    count: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotCaptured:
    """Calls that no problem stands for: ``what`` was called, ``why`` it cannot be tuned, and how often."""

    what: str
    why: str
    count: int


class Recording:
    """What a program has computed so far. Several threads may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._problems: dict[Problem, int] = {}
        self._notes: dict[Problem, dict[str, None]] = {}
        self._others: dict[tuple[str, str], int] = {}

    def add(self, problem: Problem, notes: tuple[str, ...] = ()) -> None:
        """Count one call."""
        with self._lock:
            self._problems[problem] = self._problems.get(problem, 0) + 1
            self._notes.setdefault(problem, {}).update(dict.fromkeys(notes))

    def pass_over(self, what: str, why: str) -> None:
        """Count one call that no problem stands for."""
        with self._lock:
            self._others[what, why] = self._others.get((what, why), 0) + 1

    @property
    def problems(self) -> tuple[CapturedProblem, ...]:
        """Each problem once, the most frequent first."""
        found = [CapturedProblem(p, count, tuple(self._notes[p])) for p, count in self._problems.items()]
        return tuple(sorted(found, key=lambda item: (-item.count, item.problem.label)))

    @property
    def not_captured(self) -> tuple[NotCaptured, ...]:
        """What was seen and cannot be tuned, the most frequent first."""
        found = [NotCaptured(what, why, count) for (what, why), count in self._others.items()]
        return tuple(sorted(found, key=lambda item: (-item.count, item.what, item.why)))
