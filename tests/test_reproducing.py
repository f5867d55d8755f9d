"""One stored measurement run again, with a GPU that is played by stand-ins whose times are known."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import tuner
from tests.engine_jobs import PROBLEM
from tests.fakes import FakeWorker, rounds
from tests.stored_history import GUESSED, OLD, Recorder
from tuner.config import Config
from tuner.device import Stack
from tuner.errors import MissingError, StoreError, UsageError
from tuner.evaluating import RoundsJob
from tuner.machine import Machine
from tuner.regression.report import Verdict
from tuner.reproducing import Reproduction, recipe, reproduce
from tuner.space import load_space
from tuner.store.store import Store
from tuner.targets import target
from tuner.tickets import TicketOffice
from tuner.trial import DeviceState, Measurement
from tuner.variant import Variant
from tuner.worker.messages import Died, Done, Reply
from tuner.workspace import Workspace

DEVICE = target("h200")


class FakeMachine:
    """The face of ``tuner.machine.Machine``: every fresh process answers with ``us`` and some noise."""

    def __init__(self, cache: Path, us: float, stack: Stack = OLD, *, failed: bool = False, dies: bool = False) -> None:
        self.device, self.stack, self.workspace = DEVICE, stack, Workspace(cache)
        self.jobs: list[RoundsJob] = []
        self.gpu = FakeWorker(lambda job: None)
        self._us, self._failed, self._dies = us, failed, dies

    def fresh_worker(self, name: str) -> FakeWorker:
        number = len(self.jobs)

        def answer(job: Any) -> Reply:
            self.jobs.append(job)
            if self._dies:
                return Died(timed_out=False, limit_s=120.0)
            wrong = {job.candidates[0].key: "a race"} if self._failed else {}

            def us(entry: str, n: int) -> float:
                return self._us * random.Random(f"{number}/{n}").gauss(1.0, 0.003)

            return Done(rounds(job, us, process_id=number, failed=wrong), 1.0)

        return FakeWorker(answer)


@dataclass
class Shop:
    """A database with one measurement of about 10 us."""

    store: Store
    cache: Path
    space: Path
    config: Config
    variant: Variant
    number: int

    def again(self, machine: FakeMachine, *, trust: bool = False, space: Path | None = None) -> Reproduction:
        given = recipe(self.store, self.number)
        chosen = load_space(space or self.space)
        return reproduce(given, self.store, machine, chosen, trust_source=trust, seed=0)  # type: ignore[arg-type]


@pytest.fixture
def make(cache: Path, engine_spaces: Path, tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    space = engine_spaces / "faults.yaml"
    bound = load_space(space).bind(PROBLEM, DEVICE)
    config = bound.parse("num_warps=2")
    rendered = TicketOffice(bound, Workspace(cache), OLD.triton).variant(config)
    with Store.open(str(tmp_path / "tuner.db")) as store:

        def shop(variant: Variant = rendered, stack: Stack = OLD) -> Shop:
            samples = tuple(10.0 * random.Random(n).gauss(1.0, 0.003) for n in range(30))
            states = (DeviceState(sm_clock_mhz=1980),) * 30
            measured = Measurement(
                "final", "graph-1", samples, 10.0, 9.9, 10.1, tuple(range(15)) * 2, (1,) * 15 + (2,) * 15, states
            )
            trial = Recorder(store, DEVICE).timed(PROBLEM, stack, config, measured, variant=variant)
            return Shop(store, cache, space, config, variant, store.trial(trial).measurements[-1].id)

        yield shop


def merged(shop: Shop, folder: Path) -> Shop:
    """The same shop after its database was merged into an empty one."""
    mine = str(folder / "mine.db")
    tuner.merge_database(shop.store.url, db=mine)
    store = Store.open(mine)
    tried = [t.trial for t in store.study(store.studies()[0].id).trials]
    (trial,) = [trial for trial in tried if trial.variant_hash == shop.variant.hash]
    return replace(shop, store=store, number=trial.measurements[-1].id)


def test_a_merged_source_is_not_run_before_it_is_rendered_here_or_trusted(make, cache, tmp_path):
    strange = replace(make().variant, source=make().variant.source + "\nimport os\n")
    theirs = make(strange)
    shop = merged(theirs, tmp_path)
    with shop.store:
        machine = FakeMachine(cache, 10.0)
        with pytest.raises(
            UsageError, match=rf"it was merged from {re.escape(theirs.store.label)}, and running it runs"
        ):
            shop.again(machine)
        assert machine.jobs == []
        assert shop.again(machine, trust=True).trusted


def test_a_merged_source_that_is_rendered_here_needs_no_trust(make, cache, tmp_path):
    shop = merged(make(), tmp_path)
    with shop.store:
        assert shop.store.variant_origin(shop.variant.hash) is not None
        found = shop.again(FakeMachine(cache, 10.0))
    assert found.holds and not found.trusted


def test_a_measurement_that_holds(make, cache):
    machine = FakeMachine(cache, 10.0)
    found = make().again(machine)
    assert found.holds and found.row.verdict is Verdict.SAME
    assert found.measured is not None and len(found.measured.samples_us) == 30
    assert found.row.before is not None and found.row.before.median_us == pytest.approx(10.0, rel=0.01)
    assert not found.trusted and found.row.notes == ()
    assert all(check.passed for check in found.checks)


def test_it_is_checked_first_in_two_fresh_processes_with_inputs_of_their_own(make, cache):
    machine = FakeMachine(cache, 10.0)
    shop = make()
    shop.again(machine)
    assert [job.seed for job in machine.jobs] == [1, 2]
    assert all(job.check_first for job in machine.jobs)
    assert Path(machine.jobs[0].candidates[0].source_path).read_text() == shop.variant.source
    assert machine.gpu.kills == 1


@pytest.mark.parametrize(("us", "verdict"), [(10.8, Verdict.REGRESSION), (9.2, Verdict.IMPROVEMENT)])
def test_one_that_does_not_hold_says_by_how_much(make, cache, us, verdict):
    found = make().again(FakeMachine(cache, us))
    assert not found.holds and found.row.verdict is verdict
    assert found.row.change == pytest.approx(us / 10.0 - 1.0, abs=0.01)


def test_one_that_is_wrong_now_does_not_hold(make, cache):
    found = make().again(FakeMachine(cache, 10.0, failed=True))
    assert (found.row.verdict, found.measured) == (Verdict.WRONG, None)
    assert "a race" in found.row.reason


def test_other_software_is_said(make, cache):
    found = make().again(FakeMachine(cache, 10.0, replace(OLD, driver="999.1")))
    assert found.row.notes[0].startswith("the software is another: ")


def test_a_source_that_is_not_rendered_here_is_run_only_where_it_is_trusted(make, cache):
    rendered = make().variant
    edited = replace(rendered, source=rendered.source + "\n# edited\n")
    shop = make(edited)
    machine = FakeMachine(cache, 10.0)
    with pytest.raises(UsageError, match=r"is not what this installation renders .* say --trust-source"):
        shop.again(machine)
    assert machine.jobs == []
    found = shop.again(machine, trust=True)
    assert found.holds and found.trusted
    candidate = machine.jobs[0].candidates[0]
    assert Path(candidate.source_path).read_text() == edited.source
    assert candidate.launch_arguments["num_warps"] == 2


def test_a_template_that_no_space_here_has_cannot_be_checked(make, cache, engine_spaces):
    with pytest.raises(UsageError, match="no template 'faults' is in the search space"):
        make().again(FakeMachine(cache, 10.0), trust=True, space=engine_spaces / "small.yaml")


def test_a_source_that_was_tampered_with_is_never_run(make, cache, tmp_path):
    shop = make()
    with sqlite3.connect(tmp_path / "tuner.db") as other:
        other.execute("UPDATE tuner_variant SET source = source || '# evil'")
    other.close()
    with pytest.raises(StoreError, match="was changed: it is not what its hash says"):
        shop.again(FakeMachine(cache, 10.0), trust=True)


def test_another_device_is_refused(make, cache):
    machine = FakeMachine(cache, 10.0)
    machine.device = target("a100")
    with pytest.raises(UsageError, match=r"was taken on NVIDIA H200, and this machine has .*A100"):
        make().again(machine)


def test_a_process_that_dies_is_said(make, cache):
    with pytest.raises(MissingError, match="cannot be run again: crashed"):
        make().again(FakeMachine(cache, 10.0, dies=True))


def test_an_estimate_and_a_measurement_that_is_not_there_are_refused(make):
    shop = make(stack=GUESSED)
    with pytest.raises(UsageError, match="is an estimate: nothing was timed"):
        recipe(shop.store, shop.number)
    for number in (999, 10**30):
        with pytest.raises(UsageError, match=f"there is no measurement {number}"):
            recipe(shop.store, number)


def test_without_a_gpu_it_says_that_one_is_needed(make, cache, tmp_path, monkeypatch):
    shop = make()
    monkeypatch.setattr("tuner.api.new_machine", lambda target, gpu, workers: Machine(Workspace(cache), gpu=gpu))
    with pytest.raises(MissingError, match="no GPU was found here"):
        tuner.reproduce(shop.number, space=shop.space, db=str(tmp_path / "tuner.db"))
