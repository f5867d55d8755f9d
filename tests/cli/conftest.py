"""A stand-in for ``tuner.api`` that records its calls, and values for it to return."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

import tuner
from tuner.cli import run
from tuner.config import Config
from tuner.deciding import RatioInterval
from tuner.device import Device, Stack
from tuner.errors import StudyFailedError
from tuner.operators import get
from tuner.querying import QueryResult
from tuner.regression.effect import Effect
from tuner.regression.fairness import Conditions
from tuner.regression.noise import NoiseFloor
from tuner.regression.report import RegressionReport, Row, Side, Verdict
from tuner.remeasurement import Advice, Entry, Remeasurement, Role
from tuner.reproducing import Reproduction
from tuner.results import OperatorSummary, TimeResult, TuneResult
from tuner.store.records import (
    Refusal,
    StoredMeasurement,
    StoredTrial,
    StoredWinner,
    StudyDetail,
    StudySummary,
    StudyTrial,
    WinnerRecord,
)
from tuner.trial import CheckReport, FamilyReport, Measurement, Outcome

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
PROBLEM = get("softmax").problem({"rows": 64, "cols": 1000}, "bf16")
FAST = Config("online", (("USE_EXP2", True),), (("BLOCK_COLS", 1024), ("num_warps", 8)), ("BLOCK_COLS", "num_warps"))
PLAIN = Config("online", (("USE_EXP2", False),), (("BLOCK_COLS", 512), ("num_warps", 4)), ("BLOCK_COLS", "num_warps"))
DEVICE = Device("NVIDIA H200", "cuda", 90, 32, 132, 150 << 30, 60 << 20, 232448, 233472, 65536, 65536, 1024, 2048)
MEASUREMENT = Measurement("screen", "screen-1", (12.3, 12.4), 12.345, 12.1, 12.6)
RIGHT = CheckReport((FamilyReport("randn", "softmax rows=9 cols=99 bf16", True, 0.41, 1e-3, 2.4e-3),), 0, 1.5)
WRONG = CheckReport(
    (FamilyReport("spikes", "softmax rows=9 cols=99 bf16", False, 7.5, 0.3, 0.04, "out", (3, 98), "error over bound"),),
    0,
    0.5,
)


def stack(mode: str) -> Stack:
    return Stack(mode, "3.6.0", "2.11.0", "ptxas 12.8")


def winner(estimated: bool = False) -> StoredWinner:
    record = WinnerRecord(
        trial_id=5,
        kind="winner",
        verdict="3.1 % faster than the next",
        median_us=12.345,
        low_us=12.1,
        high_us=12.6,
        estimated=estimated,
        plain_us=16.3,
        speedup=1.32,
    )
    mode = "estimated" if estimated else "measured"
    return StoredWinner(1, 1, "softmax-1", PROBLEM, DEVICE, stack(mode), FAST, "ab" * 32, record, NOW)


def summary(mode: str = "measured", best_us: float | None = 12.345) -> StudySummary:
    return StudySummary(
        id=1,
        name="softmax-1",
        problem=PROBLEM,
        device_name="NVIDIA H200",
        stack=stack(mode),
        mode=mode,
        state="finished",
        sampler="tpe",
        seed=0,
        protocol="screen-1",
        space_digest="0123456789abcdef",
        space_size=360,
        max_trials=20,
        max_seconds=None,
        trials=20,
        reused=2,
        outcomes={"timed": 17, "wrong": 1, "out_of_resources": 2},
        best_us=best_us,
        best_label=FAST.label,
        plain_us=16.3,
        speedup=1.32,
        verdict="3.1 % faster than the next",
        wall_s=65.0,
        gpu_busy_s=39.0,
        created_at=NOW,
        updated_at=NOW,
        finished_at=NOW,
    )


def detail(mode: str = "measured") -> StudyDetail:
    def trial(number: int, config: Config, outcome: Outcome, us: float | None) -> StudyTrial:
        stored = StoredTrial(
            number,
            "p",
            "d",
            "s",
            config,
            "ab" * 32,
            outcome,
            "",
            us,
            None,
            RIGHT if us else None,
            "",
            0,
            {},
            NOW,
            (StoredMeasurement(1, MEASUREMENT, NOW),) if us else (),
        )
        return StudyTrial(number, False, stored)

    return StudyDetail(
        summary=summary(mode),
        device=DEVICE,
        space_name="softmax",
        space_text="operator: softmax",
        optuna_name="softmax-1",
        trials=(trial(1, PLAIN, Outcome.TIMED, 16.3), trial(2, FAST, Outcome.TIMED, 12.345)),
        refusals=(Refusal(Outcome.OUT_OF_RESOURCES, "shared memory 250000 > 232448", 2, PLAIN.label),),
        winner=winner(mode == "estimated"),
    )


def remeasurement() -> Remeasurement:
    """A runner-up is faster now."""
    ratio = RatioInterval(1.05, 1.04, 1.06)
    entries = (
        Entry(Role.WINNER, FAST, Outcome.TIMED, "", 12.9, 12.8, 13.0, ratio, source_changed=True),
        Entry(Role.PLAIN, PLAIN, Outcome.TIMED, "", 12.3, 12.2, 12.4, RatioInterval(1.0, 1.0, 1.0)),
        Entry(Role.RUNNER_UP, replace(PLAIN, template="persistent"), Outcome.WRONG, "7 times the bound"),
    )
    return Remeasurement(
        PROBLEM, DEVICE.name, "Triton 3.7.0", "Triton 3.6.0", 12.345, Advice.SWITCH, PLAIN, "it wins by 4.0..6.0 %",
        entries, 0.05, 0.04, 0.06,
    )  # fmt: skip


def reproduction() -> Reproduction:
    """A measurement that holds."""
    row = replace(regression_report().rows[2], change=0.001, effect=Effect(0.001, -0.003, 0.005, 0.002, 30, 30))
    return Reproduction(17, row, NoiseFloor(0.009, 40, "repeats"), (RIGHT, RIGHT), MEASUREMENT, trusted=False)


def query_result() -> QueryResult:
    """One trial."""
    record = {
        "trial": 5, "operator": "softmax", "problem": PROBLEM.label, "shape": PROBLEM.sizes, "dtype": "bf16",
        "options": {}, "device": DEVICE.name, "triton": "3.6.0", "torch": "2.11.0", "driver": "", "basis": "measured",
        "template": "online", "config": FAST.label, "outcome": "timed", "reason": "", "time_us": 12.345,
        "variant": "ab" * 32, "stack": "0" * 16, "created_at": NOW,
    }  # fmt: skip
    return QueryResult(tuple(record), (tuple(record.values()),))


def regression_report() -> RegressionReport:
    """Three winners: one slower, one wrong, one the same."""
    conditions = Conditions(1980.0, 1980.0, 1980.0, 3201.0, ())

    def side(us: float) -> Side:
        return Side(5, stack("measured").label, "ab" * 32, us, 30, "screen-1", (7,), conditions)

    slower = Row(
        Verdict.REGRESSION, PROBLEM, DEVICE.key, DEVICE.name, FAST.label, FAST.key, side(50.0), side(53.0),
        change=0.06, effect=Effect(0.06, 0.055, 0.066, 0.002, 30, 30), plain_change=0.01, p_value=0.001,
        threshold=0.02, notes=("SM clock 1980 -> 1965 MHz (-0.8%)",),
    )  # fmt: skip
    wrong = replace(
        slower, verdict=Verdict.WRONG, after=None, change=None, effect=None, plain_change=None, reason="7 | 8"
    )
    same = replace(slower, verdict=Verdict.SAME, change=0.001, notes=())
    floors = {DEVICE.name: NoiseFloor(0.009, 40, "repeats")}
    return RegressionReport("Triton 3.6.0", "Triton 3.7.0", (wrong, slower, same), floors, ("a note",))


@dataclass
class FakeApi:
    """What each function does: a value to return, or an exception to raise, or a function to call."""

    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def function(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            value = self.answers[name]
            if isinstance(value, BaseException):
                raise value
            return value(*args, **kwargs) if isinstance(value, types.FunctionType) else value

        return call


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    measured = summary()
    example = get("softmax").problem({"rows": 4096, "cols": 4096}, "bf16")
    softmax = get("softmax")
    fake = FakeApi(
        {
            "tune": TuneResult(PROBLEM, measured, winner()),
            "best": winner(),
            "studies": [measured],
            "show": detail(),
            "remeasure": [remeasurement()],
            "reproduce": reproduction(),
            "query": query_result(),
            "regressions": regression_report(),
            "render": "import triton\n",
            "check": RIGHT,
            "time": TimeResult(PROBLEM, FAST, DEVICE, stack("measured"), RIGHT, MEASUREMENT, MEASUREMENT),
            "list_operators": [
                OperatorSummary(
                    "softmax",
                    softmax.summary,
                    softmax.shape_parameters,
                    softmax.options,
                    softmax.dtypes,
                    ("online", "whole_row"),
                    example,
                    "sm_90",
                    360,
                )
            ],
        }
    )
    module = types.ModuleType("tuner.api")
    for name in fake.answers:
        setattr(module, name, fake.function(name))
    monkeypatch.setitem(sys.modules, "tuner.api", module)
    monkeypatch.setattr(tuner, "api", module, raising=False)
    tune = fake.function("tune")

    class FakeSession(contextlib.nullcontext["FakeSession"]):
        """Tunes as ``api.tune`` does, which is given what the session was."""

        def __init__(self, **machine: Any) -> None:
            super().__init__(self)
            self.tune = partial(tune, **machine)

        def tune_many(self, problems: Any, *, calls: Any, on_event: Any, **arguments: Any) -> list[Any]:
            """One after the other, without a stop where one fails or Ctrl-C comes."""
            outcomes: list[Any] = []
            for problem in problems:
                try:
                    outcomes.append(self.tune(problem, **arguments, on_event=partial(on_event, problem)))
                except StudyFailedError as error:
                    outcomes.append(error)
            return outcomes

    monkeypatch.setattr("tuner.session.Session", FakeSession)
    return fake


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs one command line in this process."""

    def call(*words: str) -> Ran:
        code = run([*words])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture
def values() -> types.SimpleNamespace:
    """The values above, for tests to choose from."""
    return types.SimpleNamespace(
        problem=PROBLEM,
        fast=FAST,
        plain=PLAIN,
        device=DEVICE,
        right=RIGHT,
        wrong=WRONG,
        measurement=MEASUREMENT,
        winner=winner,
        summary=summary,
        detail=detail,
        stack=stack,
    )
