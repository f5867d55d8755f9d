"""Shows studies of several problems that run at once: each line says whose it is, and a line of its own how far all
are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from tuner.events import Event, OverallProgress, Progress, TrialFinished
from tuner.problem import Problem
from tuner.progress import PlainDisplay, PlainLines, StudyPanel, event_line
from tuner.terminal import harmless

if TYPE_CHECKING:  # rich is loaded when something is shown
    from rich.console import Console, Group


class ManyDisplay(Protocol):
    """Takes events with their problem between ``__enter__`` and ``__exit__``."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def __call__(self, problem: Problem, event: Event) -> None: ...


def make_many_display(console: Console) -> ManyDisplay:
    """The display that suits ``console``."""
    if console.is_terminal:
        return ManyLive(console)
    return ManyPlain(lambda line: console.print(harmless(line), markup=False, highlight=False, soft_wrap=True))


class ManyPlain(PlainLines):
    """The lines of ``PlainDisplay`` for each problem, behind its label; and how far all are, every few seconds."""

    def __init__(self, *where: Any, **how: Any) -> None:
        super().__init__(*where, **how)
        self._each: dict[Problem, PlainDisplay] = {}
        self._in_front: tuple[Problem, ...] = ()
        self._has_ended = False

    def __call__(self, problem: Problem, event: Event) -> None:
        if isinstance(event, OverallProgress):
            self._overall(event)
        elif not isinstance(event, Progress) or not self._in_front or problem in self._in_front:
            self._display_of(problem)(event)

    def _overall(self, event: OverallProgress) -> None:
        self._in_front = event.in_front
        ended = event.done == event.problems and not self._has_ended
        self._has_ended = self._has_ended or ended
        if self._is_due(anyhow=ended):
            self._write(event_line(event))

    def _display_of(self, problem: Problem) -> PlainDisplay:
        if problem not in self._each:
            self._each[problem] = PlainDisplay(
                lambda line: self._write(f"{problem.label}: {line}"), self._interval_s, self._clock
            )
        return self._each[problem]


class ManyLive:
    """A panel for each problem that has a GPU now, and a line for all, redrawn in place."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._each: dict[Problem, StudyPanel] = {}
        self._all: OverallProgress | None = None
        self._live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._group)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def __call__(self, problem: Problem, event: Event) -> None:
        if isinstance(event, OverallProgress):
            self._all = event
            return
        self._each.setdefault(problem, StudyPanel()).take(event)
        if not isinstance(event, Progress | TrialFinished):
            line = f"{problem.label}: {event_line(event)}"
            self._console.print(harmless(line), markup=False, highlight=False)

    def _group(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        front = self._all.in_front if self._all else tuple(self._each)[:1]
        panels = [self._each[problem].panel() for problem in front if problem in self._each]
        return Group(*panels, *([Text(harmless(event_line(self._all)))] if self._all else []))
