from __future__ import annotations

import io

from rich.console import Console

from tuner.config import Config
from tuner.events import (
    FinalistsChosen,
    Notice,
    OverallProgress,
    Progress,
    Stage,
    StudyFinished,
    StudyStarted,
    TrialFinished,
)
from tuner.problem import Problem
from tuner.progress import LiveDisplay, PlainDisplay, make_display, progress_line
from tuner.progress_many import ManyLive, ManyPlain, make_many_display
from tuner.trial import Outcome

PROBLEM = Problem("softmax", (("rows", 8), ("cols", 9)), "bf16")
STARTED = StudyStarted(PROBLEM, "softmax-1", "NVIDIA H200", "measured", "tpe", 360, 4, max_trials=20, max_seconds=60.0)
RUNNING = Progress(
    10.0,
    5,
    {Outcome.TIMED: 4, Outcome.WRONG: 1},
    "template=online",
    12.5,
    max_trials=20,
    max_seconds=60.0,
    in_flight=3,
    compile_queue=7,
    gpu_busy_share=0.62,
)


def test_time_left_is_the_smaller_of_budget_and_pace():
    assert RUNNING.remaining_s == 30.0  # 15 trials at 2 s each; the budget would leave 50 s
    assert Progress(10.0, 5, max_seconds=60.0).remaining_s == 50.0
    assert Progress(10.0, 0, max_trials=5).remaining_s is None
    assert Progress(70.0, 5, max_seconds=60.0).remaining_s == 0.0


def test_plain_lines_come_at_most_every_few_seconds():
    lines: list[str] = []
    now = [0.0]
    display = PlainDisplay(lines.append, interval_s=5.0, clock=lambda: now[0])
    with display:
        for now[0] in (0.0, 1.0, 4.9, 5.0, 9.0, 10.1):
            display(RUNNING)
    assert len(lines) == 3
    assert lines[0] == (
        "10s search; 5/20 trials (4 timed, 1 wrong); best 12.5 us template=online; 30s left; GPU busy 62%"
    )


def test_events_that_matter_are_always_one_line():
    lines: list[str] = []
    display = PlainDisplay(lines.append)
    display(STARTED)
    display(TrialFinished(1, Config("online", (), ()), Outcome.WRONG, "error over bound"))
    display(FinalistsChosen(("template=a", "template=b")))
    display(Notice("clocks are unstable"))
    display(StudyFinished("softmax-1", "3 % faster than the next", "template=a", 12.5, 12.4, 12.6, 1.3))
    assert lines == [
        "tuning softmax rows=8 cols=9 bf16 on NVIDIA H200 (measured); study softmax-1; 360 valid configs, 4 known; "
        "sampler tpe; budget 20 trials or 1m00s",
        "2 finalists: template=a; template=b",
        "note: clocks are unstable",
        "finished softmax-1: 3 % faster than the next; 12.5 us [12.4 us, 12.6 us] template=a, "
        "1.30x over the plain config",
    ]


def test_estimates_say_so_in_progress_too():
    lines: list[str] = []
    display = PlainDisplay(lines.append)
    display(StudyStarted(PROBLEM, "s", "NVIDIA H100", "estimated", "tpe", 3, 0))
    display(Progress(1.0, 1, {Outcome.TIMED: 1}, "template=a", 2.0, estimated=True))
    display(StudyFinished("s", "fastest", "template=a", 2.0, 2.0, 2.0, estimated=True))
    assert all("estimated" in line for line in lines)


def test_a_terminal_gets_a_panel_and_anything_else_plain_lines():
    assert isinstance(make_display(Console(file=io.StringIO(), force_terminal=True)), LiveDisplay)
    assert isinstance(make_display(Console(file=io.StringIO())), PlainDisplay)


def test_the_panel_shows_best_trials_time_left_and_busy_share():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    with LiveDisplay(console) as display:
        display(STARTED)
        display(RUNNING)
        display(TrialFinished(1, Config("online", (), (("num_warps", 4),)), Outcome.CRASHED))
        console.print(display._shown.panel())
    text = file.getvalue()
    for said in (
        "softmax rows=8 cols=9 bf16",
        "12.5 us  template=online",
        "5/20: 4 timed, 1 wrong",
        "10s, 30s left",
        "62%",
        "3 in flight, 7 to compile",
        "crashed: template=online,num_warps=4",
    ):
        assert said in text


def test_a_new_stage_is_shown():
    lines: list[str] = []
    PlainDisplay(lines.append)(Progress(61.0, 9, stage=Stage.FINALS))
    assert lines == ["1m01s finals; 9 trials (none); best -; ? left"]


OTHER = Problem("softmax", (("rows", 8), ("cols", 99)), "bf16")


def test_lines_of_several_problems_say_whose_they_are_and_only_who_has_the_gpu_reports_progress():
    lines: list[str] = []
    now = [0.0]
    with ManyPlain(lines.append, interval_s=5.0, clock=lambda: now[0]) as display:
        display(PROBLEM, OverallProgress(0.0, 2, 0, 0, in_front=(PROBLEM,), max_seconds=60.0))
        display(OTHER, Notice("it compiles ahead"))
        display(PROBLEM, RUNNING)
        display(OTHER, RUNNING)
        now[0] = 1.0
        display(PROBLEM, OverallProgress(1.0, 2, 1, 1, in_front=(OTHER,), max_seconds=60.0))
        display(OTHER, RUNNING)
        for _ in range(2):
            display(PROBLEM, OverallProgress(2.0, 2, 2, 1))
    assert lines == [
        "0s; 0 of 2 problems done; 1m00s left; at softmax rows=8 cols=9 bf16",
        "softmax rows=8 cols=99 bf16: note: it compiles ahead",
        f"softmax rows=8 cols=9 bf16: {progress_line(RUNNING)}",
        f"softmax rows=8 cols=99 bf16: {progress_line(RUNNING)}",
        "2s; 2 of 2 problems done, 1 of them without a winner",
    ]


def test_a_terminal_shows_a_panel_for_who_has_a_gpu_and_a_line_for_all():
    page = io.StringIO()
    display = make_many_display(Console(file=io.StringIO(), force_terminal=True, width=100))
    assert isinstance(display, ManyLive)
    with display:
        display(PROBLEM, STARTED)
        display(OTHER, STARTED)
        display(PROBLEM, RUNNING)
        display(OTHER, OverallProgress(3.0, 2, 0, 0, in_front=(PROBLEM,)))
        Console(file=page, width=100).print(display._group())
    shown = page.getvalue()
    assert "template=online" in shown and "3s; 0 of 2 problems done; at softmax rows=8 cols=9 bf16" in shown
    assert shown.count("stage") == 1
