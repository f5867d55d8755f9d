"""Launches under a GPU's conditions, on a stand-in: what each condition does, and which wrong launch it shows."""

from __future__ import annotations

import pytest
import torch

from tests.fake_gpu import FakeGpu
from tuner.check_plan import CheckPlan, PlannedCheck
from tuner.checking import check
from tuner.operators import get
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache

SOFTMAX = get("softmax")
PROBLEM = SOFTMAX.problem({"rows": 8, "cols": 300}, "bf16")
PROFILE = PrecisionProfile("bf16", "bf16", tiles=4)


def write(x, out):
    out.copy_(torch.softmax(x.float(), dim=1))


def run(launch, gpu, families=("randn",), *, thorough=True, profile=PROFILE, **options):
    checks = tuple(PlannedCheck(PROBLEM, family, profile, thorough=thorough) for family in families)
    return check(launch, SOFTMAX, CheckPlan(checks), "cpu", 0, gpu=gpu, **options)


def test_an_honest_launch_is_right_cold_warm_moved_replayed_and_on_another_stream():
    gpu = FakeGpu()
    addresses = []

    def launch(x, out):
        addresses.append(x.data_ptr())
        gpu.do(lambda: write(x, out))

    assert run(launch, gpu).passed
    assert gpu.said == ["flush", "capture", "stream"]
    first, warm, moved, replayed, stream = addresses
    assert first == warm == replayed and moved == stream != first


def test_where_it_is_not_thorough_there_are_no_graph_and_no_stream():
    gpu = FakeGpu()
    assert run(lambda x, out: gpu.do(lambda: write(x, out)), gpu, thorough=False).passed
    assert gpu.said == ["flush"]


def test_at_the_tuned_shape_it_is_launched_cold_warm_and_moved_and_nothing_waits_for_the_gpu():
    gpu = FakeGpu()
    addresses = []

    def launch(x, out):
        addresses.append(x.data_ptr())
        gpu.do(lambda: write(x, out))

    large = PlannedCheck(PROBLEM, "randn", PROFILE, thorough=True, full_size=True)
    assert check(launch, SOFTMAX, CheckPlan((large,)), "cpu", 0, gpu=gpu).passed
    assert gpu.said == ["flush"]
    first, warm, moved = addresses
    assert first == warm != moved


@pytest.mark.parametrize("bits_off_from", [2, 3])
def test_at_the_tuned_shape_a_launch_that_wavers_is_caught_by_its_repetitions(bits_off_from):
    calls = []

    def launch(x, out):
        write(x, out)
        calls.append(None)
        if len(calls) == bits_off_from:
            out[3, 3] = torch.nextafter(out[3, 3], torch.tensor(0.0, dtype=out.dtype))

    large = PlannedCheck(PROBLEM, "randn", PROFILE, thorough=True, full_size=True)
    report = check(launch, SOFTMAX, CheckPlan((large,)), "cpu", 0, gpu=FakeGpu())
    how = {2: "a launch with warm caches", 3: "a launch on inputs at another address"}[bits_off_from]
    assert report.reason.endswith(f"out: {how} gave other bits at 1 of 2400 elements")


def test_a_launch_that_cannot_be_captured_is_judged_without_it():
    gpu = FakeGpu(captures=False)
    assert run(lambda x, out: gpu.do(lambda: write(x, out)), gpu).passed


def test_a_launch_on_a_stream_of_its_own_choice_is_caught():
    gpu = FakeGpu()
    report = run(lambda x, out: gpu.do(lambda: write(x, out), stray=True), gpu)
    assert not report.passed and "never written by the replay of a CUDA graph" in report.reason
    gpu = FakeGpu(captures=False)
    report = run(lambda x, out: gpu.do(lambda: write(x, out), stray=True), gpu)
    assert not report.passed and "never written by a launch on a stream of its own" in report.reason


def test_a_launch_that_leaves_another_stream_current_is_caught():
    gpu = FakeGpu()

    def launch(x, out):
        gpu.do(lambda: write(x, out))
        gpu.place = (0, 7)

    report = run(launch, gpu)
    assert not report.passed and "a first launch left another device or stream current" in report.reason
    assert gpu.said[-1] == "restore" and gpu.current() == (0, 0), "what comes after it runs where it should"


def test_work_that_the_host_does_once_shows_when_the_graph_is_replayed():
    gpu = FakeGpu()

    def launch(x, out):
        largest = x.float().amax(dim=1, keepdim=True)  # read on the host: a graph keeps what it was
        gpu.do(lambda: out.copy_((x.float() - largest).exp() / (x.float() - largest).exp().sum(1, keepdim=True)))

    report = run(launch, gpu)
    assert not report.passed and "the replay of a CUDA graph gave other bits" in report.reason


def test_a_result_that_is_kept_by_address_is_caught_by_the_next_family():
    kept = {}

    def launch(x, out):
        out.copy_(kept.setdefault(x.data_ptr(), torch.softmax(x.float(), dim=1).to(out.dtype)))

    for gpu in (None, FakeGpu()):
        kept.clear()
        report = run(launch, gpu, ("randn", "huge"), thorough=False)
        assert [(f.family, f.passed) for f in report.families] == [("randn", True), ("huge", False)]


def test_a_launch_that_skips_what_it_has_written_before_is_caught():
    seen = set()

    def launch(x, out):
        if x.data_ptr() not in seen:
            write(x, out)
        seen.add(x.data_ptr())

    report = run(launch, FakeGpu())
    assert not report.passed and "never written by a launch with warm caches" in report.reason


def test_what_a_launch_allocates_is_poison_until_it_is_written():
    def launch(x, out):
        scratch = torch.empty(x.shape[0], dtype=torch.float32)
        scratch[1:] = x.float().amax(dim=1)[1:]
        m = scratch[:, None]
        weights = (x.float() - m.nan_to_num(0.0).clamp(max=100.0)).exp()
        out.copy_(weights / weights.sum(1, keepdim=True) + 0 * m)

    assert "NaN" in run(launch, None).reason


def test_with_atomics_repeated_launches_may_differ_within_the_bound_and_no_further():
    def wavering(step):
        calls = []

        def launch(x, out):
            calls.append(None)
            exact = torch.softmax(x.float(), dim=1)
            out.copy_(exact * (1.0 + step * len(calls)))

        return launch

    declared = PrecisionProfile("bf16", "bf16", tiles=4, accumulator="fp16", atomics=True)
    small = run(wavering(2.0**-9), None, profile=declared)
    assert small.passed
    assert not run(wavering(2.0**-9), None, profile=PrecisionProfile("bf16", "bf16", accumulator="fp16")).passed
    assert not run(wavering(2.0**-4), None, profile=declared).passed


@pytest.mark.parametrize("variation", [1, 2, 3])
def test_trials_meet_other_inputs_with_the_same_references(variation):
    given = []

    def launch(x, out):
        given.append(x.clone())
        write(x, out)

    cache = ReferenceCache()
    assert run(launch, None, cache=cache).passed
    missed = cache.misses
    report = run(launch, None, cache=cache, variation=variation)
    assert report.passed and report.variation == variation and report.seed == 0
    assert cache.misses == missed
    rows = {tuple(row.tolist()) for row in given[0]}
    assert {tuple(row.tolist()) for row in given[-1]} == rows
    assert report.as_json()["variation"] == variation and type(report).from_json(report.as_json()) == report


def test_a_wrong_element_is_located_where_it_was_written_whatever_the_variation():
    def launch(x, out):
        write(x, out)
        out[5, 17] *= 1.5

    for variation in range(4):
        assert run(launch, None, variation=variation).families[0].where == (5, 17)


@pytest.mark.parametrize("causal", [False, True])
def test_the_whole_plan_of_a_gpu_passes_an_honest_attention_and_not_one_that_is_wrong_at_full_size(causal, monkeypatch):
    from tuner.check_plan import plan
    from tuner.operators import attention_bound

    monkeypatch.setattr(attention_bound, "_WHOLE", 2**17)
    attention = get("attention_fwd")
    shape = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 192, "kv_len": 192, "head_dim": 16}
    problem = attention.problem(shape, "fp16", {"causal": causal})
    profile = PrecisionProfile("fp16", "fp16", p="fp16", dot="16bit", tiles=6)
    checks = plan(attention, problem, {"q_len": 32, "kv_len": 32}, {}, profile, full_size=True)
    gpu = FakeGpu()

    def write_attention(q, k, v, out, lse, scale, lost=()):
        group = q.shape[1] // k.shape[1]
        k, v = (t.double().repeat_interleave(group, 1) for t in (k, v))
        s = scale * q.double() @ k.transpose(2, 3)
        if causal:
            i, j = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]
            s = s.masked_fill(j > i + k.shape[2] - q.shape[2], float("-inf"))
        dead = torch.isneginf(s.amax(-1, keepdim=True))
        p = torch.softmax(s, -1).masked_fill(dead, 0.0)
        total = torch.logsumexp(s, -1).masked_fill(s.isposinf().any(-1), float("nan"))
        out.copy_(torch.where(p[..., None] == 0, 0.0, p[..., None] * v[:, :, None]).sum(-2) if causal else p @ v)
        lse.copy_(total)
        if lost and q.shape[2] == 192 and q.shape[1] == 4 and q.shape[0] == 2:
            out[lost] = 0.0

    def launch(lost=()):
        return lambda q, k, v, out, lse, scale: gpu.do(lambda: write_attention(q, k, v, out, lse, scale, lost))

    report = check(launch(), attention, checks, "cpu", 0, gpu=gpu, variation=11)
    assert report.passed, report.reason
    assert {"capture", "stream", "flush"} <= set(gpu.said)
    assert "randn (strided)" in {f.family for f in report.families} and report.families[-1].problem == problem.label
    # One row of a head of which few rows are compared: the invariant sees it.
    rows = set(range(192))
    reference = attention.reference(problem, attention.make_inputs(problem, "randn", 0, "cpu"), profile)
    batch, head, row = (axis.tolist() for axis in reference.outputs["out"].index)
    rows -= {r for b, h, r in zip(batch, head, row, strict=True) if (b, h) == (0, 1)}
    wrong = check(launch((0, 1, max(rows))), attention, checks, "cpu", 0, gpu=gpu)
    assert not wrong.passed and "a v of ones gives an output of ones: not so" in wrong.reason
