"""What the timer does beside timing, on the CPU: outputs made again after timing, on inputs changed in place."""

from __future__ import annotations

import pytest
import torch

from tuner.gpu_desk import GpuDesk, variation_seed
from tuner.operators import get
from tuner.operators.tensors import empty
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache
from tuner.timing import Prepared, Timer

SOFTMAX = get("softmax")
PROBLEM = SOFTMAX.problem({"rows": 16, "cols": 300}, "bf16")


class Candidate:
    key = "c"
    profile = PrecisionProfile("bf16", "bf16", tiles=2)


class Graph:
    """Calls the launch on each copy, as a captured graph would."""

    def __init__(self, timer, launch):
        self.replay = lambda: [launch(**copy) for copy in timer.copies]


@pytest.fixture
def desk(monkeypatch):
    """A GPU desk whose timer has three copies of small tensors on the CPU."""
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 2**30))

    def copy(operator, problem, seed):
        tensors = dict(operator.timing_inputs(problem, seed, "cpu"))
        for name, spec in operator.output_specs(problem).items():
            tensors[name] = empty(spec.shape, spec.dtype, "cpu", spec.strides)
        return tensors

    monkeypatch.setattr(Timer, "_copy", staticmethod(copy))
    made = GpuDesk.__new__(GpuDesk)
    made.problem, made.seed, made.operator = PROBLEM, 0, SOFTMAX
    made.references = ReferenceCache()
    made.timer = Timer(SOFTMAX, PROBLEM, 5, l2_bytes=2 * 16 * 300 * 2)
    assert len(made.timer.copies) == 4
    return made


def write(x, out):
    out.copy_(torch.softmax(x.float(), dim=1))


def timed(desk, launch):
    """The report after timing of a launch that was run on every copy twice."""
    for _ in range(2):
        for copy in desk.timer.copies:
            launch(**copy)
    return desk.recheck(Candidate, Prepared(launch, 4, 1.0, Graph(desk.timer, launch), "cold-graph-1"))


def test_an_honest_launch_passes_after_timing(desk):
    assert timed(desk, write).passed


def test_a_launch_that_skips_what_it_has_written_is_caught_after_timing(desk):
    seen = set()

    def launch(x, out):
        if x.data_ptr() not in seen:
            write(x, out)
        seen.add(x.data_ptr())

    report = timed(desk, launch)
    assert not report.passed and report.family == "timing" and "NaN at 4800" in report.reason


def test_a_launch_that_remembers_results_by_address_is_caught_by_inputs_changed_in_place(desk):
    kept = {}

    def launch(x, out):
        out.copy_(kept.setdefault(x.data_ptr(), torch.softmax(x.float(), dim=1).to(out.dtype)))

    report = timed(desk, launch)
    assert not report.passed and report.family == "timing (inputs changed in place)"


def test_a_launch_that_changes_its_input_while_it_is_timed_is_caught(desk):
    assert timed(desk, write).passed  # the reference is there before a candidate is
    calls = []

    def launch(x, out):
        write(x, out)
        calls.append(None)
        if len(calls) == 12:  # the last call on the first copy is the ninth
            desk.timer.copies[0]["x"][3, 3] += 1.0

    report = timed(desk, launch)
    assert not report.passed and "an input was changed while" in report.reason


def test_the_last_copy_gets_its_own_inputs_back_for_the_next_candidate(desk, monkeypatch):
    own = desk.timer.copies[-1]["x"].clone()
    assert timed(desk, write).passed
    assert torch.equal(desk.timer.copies[-1]["x"], desk.timer.copies[0]["x"])
    monkeypatch.setattr("tuner.timing.interval_us", lambda enqueue, cycles: 100.0)
    assert desk.timer.prepare(write, give_up_us=1.0).calls == 0
    assert torch.equal(desk.timer.copies[-1]["x"], own)


def test_one_call_of_a_short_kernel_is_too_short_to_give_it_up(desk, monkeypatch):
    monkeypatch.setattr("tuner.timing.interval_us", lambda enqueue, cycles: 8.0)
    monkeypatch.setattr(Timer, "_capture", lambda timer, launch, calls: None)
    assert desk.timer.prepare(write, give_up_us=6.0).calls > 0  # the kernel takes 2 us, its single launch 8


def test_trials_of_a_study_and_the_same_trial_of_another_vary_differently():
    class Other:
        key = "d"

    seeds = [variation_seed(seed, c) for seed in (0, 1) for c in (Candidate, Other)]
    assert len(set(seeds)) == 4 and all(0 < seed < 2**53 for seed in seeds)
    assert variation_seed(0, Candidate) == seeds[0]


class Launchable(Candidate):
    """What a rounds job asks of a candidate."""

    def __init__(self, key, launch):
        self.key, self._launch = key, launch

    def launch(self):
        return self._launch


def test_after_the_rounds_of_the_finals_what_was_timed_is_compared_once_more(desk, monkeypatch):
    from tests.fakes import RIGHT, STATE
    from tuner.device import Device
    from tuner.evaluating import RoundsJob

    def prepare(launch, give_up_us=float("inf")):
        for copy in desk.timer.copies:
            launch(**copy)
        return Prepared(launch, 4, 1.0, Graph(desk.timer, launch), "cold-graph-1")

    def timed_sample(prepared):
        prepared.graph.replay()
        return 10.0

    monkeypatch.setattr(desk.timer, "prepare", prepare)
    monkeypatch.setattr(desk.timer, "sample", timed_sample)
    monkeypatch.setattr(desk, "check", lambda candidate: RIGHT)
    monkeypatch.setattr(desk, "state", lambda: STATE)
    desk.prepared = {}
    seen = set()

    def skips(x, out):
        if x.data_ptr() not in seen:
            write(x, out)
        seen.add(x.data_ptr())

    entries = (Launchable("honest", write), Launchable("skips", skips))
    device = Device("h", "h", *([0] * 11))
    result = RoundsJob(PROBLEM, device, entries, 0, 2, 0, check_first=True)._run(desk)
    assert result.checks["honest"].passed and result.checks["honest"].families[-1].family == "timing"
    assert not result.checks["skips"].passed and result.checks["skips"].families[-1].family == "timing"
    without = RoundsJob(PROBLEM, device, entries, 0, 2, 0)._run(desk)
    assert without.checks == {}


def test_a_time_in_which_the_inputs_cannot_be_read_is_not_believed(desk):
    from tests.fakes import RIGHT
    from tuner.device import Device

    facts = {name: 0 for name in Device.__dataclass_fields__}
    facts |= {"name": "h", "key": "h", "memory_bandwidth": 1e9, "l2_bytes": 16 * 300 * 2}
    desk.device = Device(**{name: facts[name] for name in Device.__dataclass_fields__})
    right = RIGHT.families[0]
    assert desk.plausible(PROBLEM, right, fastest_us=5.0, calls=4).passed  # 9600 bytes at 1 GB/s take 9.6 us
    impossible = desk.plausible(PROBLEM, right, fastest_us=4.5, calls=4)
    assert (
        not impossible.passed and "faster than h can compute or read this (4.80 us at the least)" in impossible.reason
    )
    assert desk.plausible(PROBLEM, right, fastest_us=4.5, calls=0).passed  # cut short: nothing was sampled
    desk.device = Device(**{**vars(desk.device), "l2_bytes": 16 * 300 * 5})
    assert desk.plausible(PROBLEM, right, fastest_us=0.1, calls=4).passed  # the copies may stay in the cache


def test_an_output_of_integers_must_be_written_again_after_timing(desk):
    topk = get("softmax_topk")
    problem = topk.problem({"rows": 16, "cols": 300, "k": 4}, "bf16")
    desk.problem, desk.operator = problem, topk
    desk.timer = Timer(topk, problem, 5, l2_bytes=2 * 16 * 300 * 2)
    seen = set()

    def launch(x, values, indices):
        top = torch.topk(torch.softmax(x.double(), dim=1), 4)
        values.copy_(top.values)
        # Of equal elements, which torch takes as they come, the first column first.
        indices.copy_(torch.sort(x.float(), dim=1, descending=True, stable=True).indices[:, :4])

    def lazy(x, values, indices):
        kept = indices.clone()
        launch(x, values, indices)
        if x.data_ptr() in seen:
            indices.copy_(kept)
        seen.add(x.data_ptr())

    assert timed(desk, launch).passed
    report = timed(desk, lazy)
    assert not report.passed and report.output == "indices" and "64 of 64 elements" in report.reason
