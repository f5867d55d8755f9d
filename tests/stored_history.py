"""Databases with made-up measurements whose truth is known: winners on several stacks, devices and dates."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np

from tuner.config import Config
from tuner.device import Device, Stack
from tuner.problem import Problem
from tuner.statistics import summarise
from tuner.store.records import StudySpec, WinnerRecord
from tuner.store.store import Store
from tuner.targets import target
from tuner.trial import CheckReport, CompileReport, DeviceState, FamilyReport, Measurement, Outcome, TrialRecord
from tuner.variant import Variant

H200 = target("h200")
OLD = Stack("measured", "3.6.0", "2.11.0", "ptxas 13.0", "580.159", "13.0")
NEW = replace(OLD, triton="3.7.1")
GUESSED = Stack("estimated", "3.6.0", "2.11.0", "ptxas 13.0")
RIGHT = CheckReport((FamilyReport("randn", "softmax rows=9 cols=99", True, 0.4, 1e-3, 2.5e-3),), 0, 0.1)
VARIANT = Variant("softmax", "online", "a" * 64, (), "def launch(x, out): ...\n", "tl.exp2")


def problem(cols: int) -> Problem:
    return Problem("softmax", (("rows", 4096), ("cols", cols), ("row_stride", cols)), "bf16")


def config(number: int) -> Config:
    return Config("online", (), (("BLOCK_COLS", number), ("num_warps", 4)), ("BLOCK_COLS", "num_warps"))


PLAIN = config(1)


def simulated(
    us: float,
    seed: object,
    *,
    rounds: int = 15,
    processes: int = 2,
    noise: float = 0.005,
    process_noise: float = 0.001,
    session_noise: float = 0.0,
    clock: float | Sequence[float] = 1980,
    memory_clock: int = 3201,
    throttles: tuple[str, ...] = (),
    stage: str = "final",
    protocol: str = "cold-graph-1",
) -> Measurement:
    """Samples about ``us``: noise of each sample, process and session; clocks do not change the times."""
    random = np.random.default_rng([int(hashlib.sha256(str(seed).encode()).hexdigest()[:15], 16)])
    centre = us * np.exp(random.normal(0.0, session_noise))
    at = [(process, number) for process in range(processes) for number in range(rounds)]
    shift = np.exp(random.normal(0.0, process_noise, processes))
    samples = [float(centre * shift[p] * np.exp(random.normal(0.0, noise))) for p, _ in at]
    clocks = [clock] * len(at) if isinstance(clock, int | float) else [clock[n % len(clock)] for _, n in at]
    summary = summarise(samples)
    return Measurement(
        stage, protocol, tuple(samples), summary.median, summary.low, summary.high,
        rounds=tuple(number for _, number in at),
        process=tuple(1000 + process for process, _ in at),
        states=tuple(DeviceState(int(c), memory_clock, 55, 500.0, throttles) for c in clocks),
    )  # fmt: skip


class Recorder:
    """Writes what studies, finals and remeasurements would."""

    def __init__(self, store: Store, device: Device = H200) -> None:
        self.store, self.device = store, device

    def study(self, problem: Problem, stack: Stack, space: str = "space-1") -> int:
        protocol = "cold-graph-1" if stack.mode == "measured" else "estimate-1"
        spec = StudySpec(problem, self.device, stack, "softmax", space, "operator: softmax\n", "tpe", 0, protocol)
        return self.store.start_study(spec).id

    def timed(
        self,
        problem: Problem,
        stack: Stack,
        config: Config,
        *measurements: Measurement,
        variant: Variant = VARIANT,
        same_as: str = "",
        value_us: float | None = None,
    ) -> int:
        record = TrialRecord(
            config, variant.hash, Outcome.TIMED, value_us=value_us or measurements[0].median_us,
            compile_report=CompileReport(config.key * 4, (), 1.0), check_report=RIGHT, measurements=measurements,
            same_as=same_as,
        )  # fmt: skip
        return self.store.record_trial(self.study(problem, stack), record, variant)

    def failed(self, problem: Problem, stack: Stack, config: Config, outcome: Outcome, reason: str) -> int:
        record = TrialRecord(config, VARIANT.hash, outcome, reason)
        return self.store.record_trial(self.study(problem, stack), record, VARIANT)

    def crowned(
        self,
        problem: Problem,
        stack: Stack,
        config: Config,
        *measurements: Measurement,
        plain: Measurement | None = None,
        variant: Variant = VARIANT,
        finalists: tuple[dict[str, object], ...] = (),
    ) -> int:
        """A winner with its measurements, and the plain config's beside it. Returns the winner's trial."""
        trial_id = self.timed(problem, stack, config, *measurements, variant=variant)
        if plain is not None:
            self.timed(problem, stack, PLAIN, plain, variant=variant)
        us = measurements[0].median_us
        record = WinnerRecord(
            trial_id, "winner", "made up", us, us, us, stack.mode == "estimated",
            plain_key=PLAIN.key if plain else "", plain_us=plain.median_us if plain else None, finalists=finalists,
        )  # fmt: skip
        self.store.record_winner(self.study(problem, stack), record)
        return trial_id


def dated(path: Path, table: str, ids: Sequence[int], moment: datetime) -> None:
    """Sets when rows were stored."""
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
    columns = ["created_at", "updated_at"] if table == "tuner_trial" else ["created_at"]
    marks = ",".join("?" * len(ids))
    with sqlite3.connect(path) as other:
        for column in columns:
            other.execute(f"UPDATE {table} SET {column} = ? WHERE id IN ({marks})", (text, *ids))
    other.close()
