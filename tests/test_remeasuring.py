"""Stored winners measured again, with a GPU that is played by stand-ins whose times are known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tuner
from tests.engine_jobs import PROBLEM
from tests.fakes import FakeCompilers, FakeWorker, rounds, timed, wrong
from tests.stored_history import NEW, OLD, Recorder
from tuner import remeasuring
from tuner.config import Config
from tuner.device import Stack
from tuner.errors import MissingError, UsageError
from tuner.evaluating import EvaluateJob, Evaluation, RoundsJob, SetUpJob
from tuner.gpu_lane import Lane
from tuner.machine import Machine
from tuner.program import Program
from tuner.querying import Filters
from tuner.regression.report import Verdict
from tuner.remeasurement import Advice, Batch, Entry, Remeasurement, Role, advise
from tuner.remeasuring import Remeasuring, stored_winners
from tuner.space import load_space
from tuner.store.records import WinnerRecord
from tuner.store.store import Store
from tuner.targets import target
from tuner.tickets import TicketOffice
from tuner.trial import CompileReport, Measurement, Outcome
from tuner.worker.messages import Died, Done, Reply
from tuner.workspace import Workspace

DEVICE = target("h200")
WARPS = {"plain": "num_warps=1", "winner": "num_warps=2", "second": "num_warps=2,PROGRAMS_PER_SM=2"}


@dataclass
class Truth:
    """What each config takes now, by name; ``wrong`` fail the check at once, ``later`` on new inputs, ``crash`` die."""

    us: dict[str, float] = field(default_factory=lambda: {"plain": 14.0, "winner": 10.0, "second": 10.6})
    wrong: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    crash: tuple[str, ...] = ()
    clock: Callable[[int], int] = lambda number: 1980


class FakeMachine:
    """The face of ``tuner.machine.Machine``: a GPU that answers with the truth and some noise."""

    measures = True

    def __init__(self, cache: Path, truth: Truth, names: dict[str, str]) -> None:
        self.device, self.stack, self.workspace = DEVICE, NEW, Workspace(cache)
        self._truth, self._names = truth, names
        self.gpu = FakeWorker(self._first_look)
        self.lanes = [Lane(self.gpu)]  # type: ignore[arg-type]
        self.workers: list[FakeWorker] = []

    def compilers(self) -> FakeCompilers:
        return FakeCompilers()

    def fresh_worker(self, name: str) -> FakeWorker:
        number = len(self.workers)
        worker = FakeWorker(lambda job: self._rounds(job, number))
        self.workers.append(worker)
        return worker

    def _first_look(self, job: Any) -> Reply:
        if isinstance(job, SetUpJob):
            return Done(0.1, 0.1)
        assert isinstance(job, EvaluateJob)
        name = self._names[job.candidate.key]
        if name in self._truth.crash:
            return Died(timed_out=False, limit_s=20.0)
        if name in self._truth.wrong:
            return Done(Evaluation(wrong("7.0 times the bound"), None), 1.0)
        us = self._truth.us[name]
        return Done(timed(us, pruned=us > 3 * job.best_us), 1.0)

    def _rounds(self, job: Any, process_id: int) -> Reply:
        assert isinstance(job, RoundsJob)

        def us(entry: str, number: int) -> float:
            name = self._names[entry.removesuffix("/again")]
            return self._truth.us[name] * random.Random(f"{entry}/{number}/{process_id}").gauss(1.0, 0.003)

        failed = {key: "a race" for key, name in self._names.items() if name in self._truth.later}
        return Done(rounds(job, us, process_id=process_id, failed=failed, clock_mhz=self._truth.clock), 1.0)


@dataclass
class Shop:
    """A database with one winner of an older stack, and what is needed to measure it again."""

    store: Store
    path: Path
    cache: Path
    space: Path
    configs: dict[str, Config]
    spoken: list[str] = field(default_factory=list)

    def again(self, truth: Truth, runners_up: int = 5, stack: Stack = NEW) -> Remeasurement:
        machine = FakeMachine(self.cache, truth, {config.key: name for name, config in self.configs.items()})
        machine.stack = stack
        winners = stored_winners(self.store, machine, Filters())  # type: ignore[arg-type]
        run = Remeasuring(self.store, machine, 0, runners_up, self.spoken.append)  # type: ignore[arg-type]
        (found,) = run.run(winners, lambda operator: load_space(self.space))
        return found

    def roles(self, found: Remeasurement) -> dict[str, Entry]:
        names = {config.key: name for name, config in self.configs.items()}
        return {names[entry.config.key]: entry for entry in found.entries}


@pytest.fixture
def shop(cache: Path, engine_spaces: Path, tmp_path: Path) -> Iterator[Shop]:
    space = engine_spaces / "faults.yaml"
    bound = load_space(space).bind(PROBLEM, DEVICE)
    office = TicketOffice(bound, Workspace(cache), OLD.triton)
    configs = {name: bound.parse(text) for name, text in WARPS.items()}
    path = tmp_path / "tuner.db"
    with Store.open(str(path)) as store:
        recorder, ids = Recorder(store, DEVICE), {}
        for name, us in (("plain", 14.0), ("winner", 10.0), ("second", 10.6)):
            samples = tuple(us * random.Random(f"{name}/{n}").gauss(1.0, 0.003) for n in range(30))
            measured = Measurement(
                "final", "graph-1", samples, us, 0.99 * us, 1.01 * us,
                rounds=tuple(n % 15 for n in range(30)), process=(1,) * 15 + (2,) * 15,
            )  # fmt: skip
            ids[name] = recorder.timed(PROBLEM, OLD, configs[name], measured, variant=office.variant(configs[name]))
        finalists = tuple({"key": configs[n].key, "median_us": us} for n, us in (("second", 10.6), ("winner", 10.0)))
        store.record_winner(
            recorder.study(PROBLEM, OLD),
            WinnerRecord(
                ids["winner"], "winner", "by 6 %", 10.0, 9.9, 10.1, False,
                plain_key=configs["plain"].key, plain_us=14.0, speedup=1.4, finalists=finalists,
            ),
        )  # fmt: skip
        yield Shop(store, path, cache, space, configs)


def test_a_winner_that_still_wins_is_kept(shop):
    found = shop.again(Truth())
    assert (found.advice, found.to) == (Advice.KEEP, shop.configs["winner"])
    entries = shop.roles(found)
    assert [entries[name].role for name in ("winner", "second", "plain")] == list(Role)
    assert entries["winner"].median_us == pytest.approx(10.0, rel=0.01)
    assert entries["second"].ratio is not None and entries["second"].ratio.ratio == pytest.approx(1.06, abs=0.01)
    assert (found.stored_us, found.stored_stack, found.stack) == (10.0, OLD.label, NEW.label)
    assert not found.estimated and not entries["winner"].source_changed


def test_what_was_measured_is_stored_and_feeds_the_regressions(shop):
    shop.again(Truth(us={"plain": 14.0, "winner": 11.0, "second": 11.7}))
    report = tuner.regressions(db=str(shop.path))
    (row,) = report.rows
    assert row.verdict is Verdict.REGRESSION
    assert row.change == pytest.approx(0.10, abs=0.01)
    assert row.plain_change == pytest.approx(0.0, abs=0.01)
    assert (report.before, report.after) == (OLD.label, NEW.label)
    stored = tuner.query("measurements", triton=NEW.triton, db=str(shop.path)).as_records()
    assert {r["stage"] for r in stored} == {"screen", "remeasure"}
    assert sum(r["stage"] == "remeasure" for r in stored) == 3


def test_the_same_software_at_two_times(shop):
    (winner,) = shop.store.history.winners(estimated=False)
    shop.again(Truth(), stack=OLD)
    (row,) = tuner.regressions({"until": winner.created_at.isoformat()}, db=str(shop.path)).rows
    assert row.verdict is Verdict.SAME
    assert row.before is not None and row.after is not None
    assert row.before.trial_id == row.after.trial_id and row.before.measurements < row.after.measurements


def test_a_regression_seen_once_is_to_be_confirmed_and_then_is(shop):
    slower = Truth(us={"plain": 14.0, "winner": 11.0, "second": 11.7})
    shop.again(slower)
    (row,) = tuner.regressions(db=str(shop.path)).rows
    assert row.verdict is Verdict.REGRESSION
    assert row.notes[-1] == "seen in one measurement; `tuner remeasure` once more confirms it or not"
    shop.again(replace(slower, us={"plain": 14.0, "winner": 11.01, "second": 11.7}))
    (row,) = tuner.regressions(db=str(shop.path)).rows
    assert row.verdict is Verdict.REGRESSION and row.after is not None
    assert row.after.blocks == 60
    assert not any("seen in one" in note for note in row.notes)


def test_a_runner_up_that_is_faster_now_is_switched_to_with_by_how_much(shop):
    found = shop.again(Truth(us={"plain": 14.0, "winner": 10.3, "second": 9.8}))
    assert (found.advice, found.to) == (Advice.SWITCH, shop.configs["second"])
    assert found.gain == pytest.approx(0.051, abs=0.01)
    assert found.gain_low is not None and found.gain_high is not None
    assert found.gain_low < found.gain < found.gain_high
    assert "wins by" in found.reason


def test_a_difference_within_one_per_cent_is_no_reason_to_switch(shop):
    assert shop.again(Truth(us={"plain": 14.0, "winner": 10.0, "second": 9.97})).advice is Advice.KEEP


def test_a_winner_that_is_wrong_now_is_never_kept(shop):
    found = shop.again(Truth(wrong=("winner",)))
    assert (found.advice, found.to) == (Advice.SWITCH, shop.configs["second"])
    assert "the stored winner cannot be used: wrong: randn" in found.reason
    (row,) = tuner.regressions(db=str(shop.path)).rows
    assert row.verdict is Verdict.WRONG


def test_one_that_fails_on_the_new_inputs_is_wrong_too(shop):
    found = shop.again(Truth(later=("winner",)))
    assert found.advice is Advice.SWITCH
    assert shop.roles(found)["winner"].outcome is Outcome.WRONG
    assert "when it was measured again: randn" in shop.roles(found)["winner"].reason
    (row,) = tuner.regressions(db=str(shop.path)).rows
    assert row.verdict is Verdict.WRONG


def test_a_crash_takes_nothing_with_it(shop):
    found = shop.again(Truth(crash=("second",)))
    assert found.advice is Advice.KEEP
    assert shop.roles(found)["second"].outcome is Outcome.CRASHED


def test_where_only_the_plain_config_is_left_it_is_tuned_again(shop):
    found = shop.again(Truth(wrong=("winner", "second")))
    assert (found.advice, found.to) == (Advice.TUNE_AGAIN, shop.configs["plain"])


def test_where_nothing_works_it_is_tuned_again(shop):
    found = shop.again(Truth(wrong=("winner", "second", "plain")))
    assert (found.advice, found.to) == (Advice.TUNE_AGAIN, None)
    assert found.reason.startswith("none of the 3 works here")


def test_where_all_got_much_slower_it_is_tuned_again(shop):
    found = shop.again(Truth(us={"plain": 14.5, "winner": 11.5, "second": 12.5}))
    assert found.advice is Advice.TUNE_AGAIN
    assert "slower than the winner was when it was stored" in found.reason


def test_an_unsteady_card_decides_nothing(shop):
    found = shop.again(Truth(us={"plain": 14, "winner": 10.2, "second": 9.6}, clock=lambda n: 1980 if n % 3 else 1000))
    assert found.advice is Advice.KEEP and found.reason.startswith("not decided: the card was unsteady")


def test_one_that_is_far_slower_is_measured_all_the_same(shop):
    found = shop.again(Truth(us={"plain": 10.0, "winner": 10.0, "second": 40.0}))
    assert shop.roles(found)["second"].median_us == pytest.approx(40.0, rel=0.01)
    assert shop.roles(found)["second"].outcome is Outcome.TIMED


def test_as_many_runners_up_as_are_wanted(shop):
    assert [entry.role for entry in shop.again(Truth(), runners_up=0).entries] == [Role.WINNER, Role.PLAIN]


def test_a_config_that_the_space_lost_is_left_out_and_said(shop, tmp_path):
    text = (shop.space).read_text().replace("PROGRAMS_PER_SM: [1, 2]", "PROGRAMS_PER_SM: [1]")
    (tmp_path / "faults.py").write_text((shop.space.parent / "faults.py").read_text())
    (tmp_path / "faults.yaml").write_text(text)
    found = replace(shop, space=tmp_path / "faults.yaml").again(Truth())
    second = shop.roles(found)["second"]
    assert (second.outcome, second.reason) == (None, "its search space does not hold it any more")
    assert found.advice is Advice.KEEP


def test_an_edited_template_is_measured_as_it_is_now_and_said_to_have_changed(shop, tmp_path):
    (tmp_path / "faults.py").write_text((shop.space.parent / "faults.py").read_text() + "\n\nEDITED = True\n")
    (tmp_path / "faults.yaml").write_text(shop.space.read_text())
    found = replace(shop, space=tmp_path / "faults.yaml").again(Truth())
    assert all(entry.source_changed for entry in found.entries)


def test_nothing_stored_for_this_device_is_an_error(shop):
    machine = FakeMachine(shop.cache, Truth(), {})
    machine.device = target("a100")
    with pytest.raises(UsageError, match=r"no such measured winner is stored for .*A100"):
        stored_winners(shop.store, machine, Filters())  # type: ignore[arg-type]
    machine.device = DEVICE
    with pytest.raises(UsageError, match="no such measured winner"):
        stored_winners(shop.store, machine, Filters(shape="cols=500.."))  # type: ignore[arg-type]


def test_without_a_gpu_it_says_that_one_is_needed(shop, standing_machine, monkeypatch):
    for module in ("tuner.api", "tuner.session"):
        monkeypatch.setattr(
            f"{module}.new_machine", lambda target, gpu, workers: Machine(Workspace(shop.cache), gpu=gpu)
        )
    with pytest.raises(MissingError, match="no GPU was found here"):
        tuner.remeasure(db=str(shop.path))


@pytest.mark.slow
def test_estimates_are_estimated_again_without_a_gpu(tune_environment, standing_machine, engine_spaces):
    space = engine_spaces / "small.yaml"
    result = tuner.tune(PROBLEM, space=space, trials=3)
    assert result.estimated
    seen: list[Remeasurement] = []
    (found,) = tuner.remeasure(space=space, estimated=True, on_result=seen.append)
    assert seen == [found]
    assert found.estimated and found.advice is Advice.KEEP
    assert found.entries[0].median_us == result.winner.record.median_us
    assert "estimated, not measured" in found.reason


# the decision alone


def entry(name: str, us: float | None, role: Role = Role.RUNNER_UP) -> Entry:
    config = Config("t", (), (("NAME", name),), ("NAME",))
    outcome = Outcome.WRONG if us is None else Outcome.TIMED
    return Entry(role, config, outcome, "" if us else "7 times the bound", us, us, us)


def test_a_tie_keeps_the_stored_winner_whatever_was_chosen_among_it():
    winner, other = entry("w", 10.0, Role.WINNER), entry("o", 9.95)
    batch = Batch((winner, other), other.config.key, (winner.config.key, other.config.key), "tie of 2", True)
    assert advise(winner, 10.0, batch) == (Advice.KEEP, winner.config, "tie of 2")


def test_a_problem_whose_space_is_gone_does_not_stop_the_others(shop):
    def gone(operator: str) -> Any:
        raise UsageError("there is no operator 'softmax'")

    machine = FakeMachine(shop.cache, Truth(), {})
    winners = stored_winners(shop.store, machine, Filters())  # type: ignore[arg-type]
    run = Remeasuring(shop.store, machine, 0, 5, shop.spoken.append)  # type: ignore[arg-type]
    assert list(run.run(winners, gone)) == []
    assert shop.spoken == [f"{PROBLEM.label} is left out: there is no operator 'softmax'"]


def test_one_binary_checked_for_two_things_is_two_programs():
    compiled = CompileReport("abc", (), 1.0)
    strict, lax = (SimpleNamespace(compiled=compiled, candidate=SimpleNamespace(promise=p)) for p in ("strict", "lax"))
    assert remeasuring._same(strict, Program("abc", "strict"))
    assert not remeasuring._same(lax, Program("abc", "strict"))
    assert not remeasuring._same(strict, Program("abd", "strict"))
