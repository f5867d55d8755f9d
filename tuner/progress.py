"""Shows a running study on stderr: a live panel on a terminal, plain lines every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self

from tuner.events import (
    Event,
    FinalistsChosen,
    Notice,
    OverallProgress,
    Progress,
    StudyFinished,
    StudyStarted,
    TrialFinished,
)
from tuner.terminal import harmless
from tuner.trial import Outcome
from tuner.wording import duration_text, gain_text, interval_text, outcomes_text, time_text

if TYPE_CHECKING:  # rich is loaded when something is shown
    from rich.console import Console
    from rich.panel import Panel

PLAIN_INTERVAL_S = 5.0
"""The shortest time between two plain progress lines."""


class Display(Protocol):
    """Takes events between ``__enter__`` and ``__exit__``."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def __call__(self, event: Event) -> None: ...


def make_display(console: Console) -> Display:
    """The display that suits ``console``."""
    if console.is_terminal:
        return LiveDisplay(console)
    return PlainDisplay(lambda line: console.print(harmless(line), markup=False, highlight=False, soft_wrap=True))


class PlainLines:
    """Lines without colours and cursor, of which those on progress come at most every few seconds."""

    def __init__(
        self,
        write: Callable[[str], None],
        interval_s: float = PLAIN_INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._interval_s = interval_s
        self._clock = clock
        self._last: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def _is_due(self, anyhow: bool = False) -> bool:
        """Whether a line on progress is to be written now, or is ``anyhow``; then the time until the next begins."""
        now = self._clock()
        due = anyhow or self._last is None or now - self._last >= self._interval_s
        self._last = now if due else self._last
        return due


class PlainDisplay(PlainLines):
    """One line an event that matters, and a progress line at most every few seconds."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress):
            if self._is_due():
                self._write(progress_line(event))
        elif not isinstance(event, TrialFinished):
            self._write(event_line(event))


class LiveDisplay:
    """A panel that is redrawn in place: best so far, trials by outcome, time left, GPU busy share."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._shown = StudyPanel()
        self._live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._shown.panel)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        self._shown.take(event)
        if not isinstance(event, Progress | TrialFinished):
            self._console.print(harmless(event_line(event)), markup=False, highlight=False)


class StudyPanel:
    """What a panel shows of one study."""

    def __init__(self) -> None:
        self._title = ""
        self._progress: Progress | None = None
        self._last_failure = ""

    def take(self, event: Event) -> None:
        """Show what ``event`` says from now on."""
        if isinstance(event, Progress):
            self._progress = event
        elif isinstance(event, TrialFinished):
            if event.outcome not in (Outcome.TIMED, Outcome.PRUNED):
                self._last_failure = f"{event.outcome}: {event.config.label}"
        elif isinstance(event, StudyStarted):
            self._title, self._progress, self._last_failure = event.problem.label, None, ""

    def panel(self) -> Panel:
        """The panel now."""
        from rich.panel import Panel
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        p = self._progress
        if p is None:
            grid.add_row("stage", "starting")
        else:
            grid.add_row("stage", f"{p.stage} ({p.in_flight} in flight, {p.compile_queue} to compile)")
            grid.add_row("best", Text(harmless(f"{time_text(p.best_us, p.estimated)}  {p.best_label}")))
            grid.add_row("trials", f"{_of(p.finished, p.max_trials)}: {outcomes_text(p.outcomes, p.estimated)}")
            grid.add_row("time", f"{duration_text(p.elapsed_s)}, {duration_text(p.remaining_s)} left")
            if p.gpu_busy_share is not None:
                grid.add_row("GPU busy", f"{p.gpu_busy_share:.0%}")
        if self._last_failure:
            grid.add_row("last failure", Text(harmless(self._last_failure)))
        return Panel(grid, title=Text(harmless(self._title)), title_align="left", border_style="blue")


def progress_line(p: Progress) -> str:
    """Everything that the panel shows, on one line."""
    words = [
        f"{duration_text(p.elapsed_s)} {p.stage}",
        f"{_of(p.finished, p.max_trials)} trials ({outcomes_text(p.outcomes, p.estimated)})",
        f"best {time_text(p.best_us, p.estimated)} {p.best_label}".rstrip(),
        f"{duration_text(p.remaining_s)} left",
    ]
    if p.gpu_busy_share is not None:
        words.append(f"GPU busy {p.gpu_busy_share:.0%}")
    return "; ".join(words)


def event_line(event: StudyStarted | FinalistsChosen | StudyFinished | Notice | OverallProgress) -> str:
    """The line that an event is worth."""
    if isinstance(event, OverallProgress):
        failed = f", {event.failed} of them without a winner" if event.failed else ""
        left = "" if event.remaining_s is None else f"; {duration_text(event.remaining_s)} left"
        at = "" if not event.in_front else f"; at {', '.join(problem.label for problem in event.in_front)}"
        return f"{duration_text(event.elapsed_s)}; {event.done} of {event.problems} problems done{failed}{left}{at}"
    if isinstance(event, StudyStarted):
        word = "continuing" if event.resumed else "tuning"
        size = "a space too large to count" if event.space_size is None else f"{event.space_size} valid configs"
        budget = [f"{event.max_trials} trials"] if event.max_trials is not None else []
        budget += [duration_text(event.max_seconds)] if event.max_seconds is not None else []
        mode = "estimated, without a GPU" if event.estimated else "measured"
        return (
            f"{word} {event.problem.label} on {event.device} ({mode}); study {event.study}; {size}, "
            f"{event.known} known; sampler {event.sampler}; budget {' or '.join(budget) or 'until all are tried'}"
        )
    if isinstance(event, FinalistsChosen):
        return f"{len(event.labels)} finalists: {'; '.join(event.labels)}"
    if isinstance(event, StudyFinished):
        if event.median_us is None:
            return f"finished {event.study}: {event.verdict}"
        figures = f"{time_text(event.median_us, event.estimated)} {interval_text(event.low_us, event.high_us)}".rstrip()
        gain = "" if event.speedup is None else f", {gain_text(event.speedup)} over the plain config"
        return f"finished {event.study}: {event.verdict}; {figures} {event.winner_label}{gain}"
    return f"note: {event.text}"


def _of(count: int, limit: int | None) -> str:
    return str(count) if limit is None else f"{count}/{limit}"
