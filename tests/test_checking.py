"""The check, on launches written with torch: what passes, what each kind of failure is called, and what is cached."""

from __future__ import annotations

import functools

import pytest
import torch

from tuner.check_plan import CheckPlan, PlannedCheck, plan
from tuner.checking import ReferenceCache, check, recheck
from tuner.guarded import GuardedInputs, GuardedOutputs, checksum
from tuner.operators import OutputSpec, get
from tuner.precision import PrecisionProfile

SOFTMAX, ATTENTION = get("softmax"), get("attention_fwd")
PROFILE = PrecisionProfile("bf16", "bf16", tiles=4)
PROBLEM = SOFTMAX.problem({"rows": 64, "cols": 300, "row_stride": 320}, "bf16")


def honest(x, out):
    out.copy_(torch.softmax(x.float(), dim=1))


def run(launch, families=("randn",), problem=PROBLEM, **options):
    checks = CheckPlan(tuple(PlannedCheck(problem, family, PROFILE) for family in families))
    return check(launch, SOFTMAX, checks, "cpu", 0, **options)


def failure(launch, families=("randn",), problem=PROBLEM):
    report = run(launch, families, problem)
    assert not report.passed
    return report.families[-1]


def test_an_honest_launch_passes_every_family():
    report = run(honest, SOFTMAX.families(PROBLEM))
    assert report.passed, report.reason
    assert [f.family for f in report.families] == list(SOFTMAX.families(PROBLEM))
    assert report.mode == "interpreter" and 0.5 < report.worst_ratio <= 1.0


def test_it_stops_at_the_first_family_that_fails():
    def overflows(x, out):
        weights = x.float().exp()
        out.copy_(weights / weights.sum(1, keepdim=True))

    report = run(overflows, ("randn", "huge", "constant"))
    assert [(f.family, f.passed) for f in report.families] == [("randn", True), ("huge", False)]
    assert report.reason.startswith("huge at softmax rows=64 cols=300 row_stride=320 bf16: out: NaN")


def test_a_constant_factor_is_named():
    def doubled(x, out):
        out.copy_(torch.softmax(x.float(), dim=1) * 1.5)

    failed = failure(doubled)
    assert "constant factor 1.5" in failed.reason and failed.ratio > 100 and failed.error > failed.bound > 0


def test_a_wrong_column_is_located():
    def one_column(x, out):
        honest(x, out)
        out[:, 17] *= 1.05

    failed = failure(one_column)
    assert "only column 17 of 300" in failed.reason and failed.where[1] == 17


def test_elements_that_are_never_written_are_told_from_nan():
    def partly(x, out):
        out[:, 1:] = torch.softmax(x.float(), dim=1)[:, 1:]

    assert "64 of 19200 elements were never written" in failure(partly).reason


def test_a_row_of_nan_that_is_never_written_shows():
    def skips_dead_rows(x, out):
        result = torch.softmax(x.float(), dim=1)
        alive = ~result.isnan().any(dim=1)
        out[alive] = result[alive].to(out.dtype)

    assert "never written" in failure(skips_dead_rows, ("masked",)).reason


def test_a_nan_or_infinity_that_is_swallowed_shows():
    def swallows_nan(x, out):
        out.copy_(torch.softmax(x.float().masked_fill(x.isnan(), 0.0), dim=1))

    def clamps_infinity(x, out):
        out.copy_(torch.softmax(x.float().clamp(max=3e38), dim=1))

    assert "where the reference is not" in failure(swallows_nan, ("nonfinite",)).reason
    assert "where the reference is not" in failure(clamps_infinity, ("nonfinite",)).reason
    assert run(honest, ("nonfinite", "tiny")).passed


def test_a_kernel_that_takes_its_tensors_to_be_contiguous_fails_on_strided_ones():
    problem = ATTENTION.problem({"batch": 2, "heads": 2, "q_len": 20, "kv_len": 40, "head_dim": 16}, "fp32")

    def attention(q, k, v, out, lse, scale, contiguous=False):
        if contiguous:  # reads the elements in the order in which they lie
            q, k, v = (t.as_strided(t.shape, torch.empty(t.shape, device="meta").stride()) for t in (q, k, v))
        s = scale * q.double() @ k.double().transpose(2, 3)
        out.copy_(torch.softmax(s, -1) @ v.double())
        lse.copy_(torch.logsumexp(s, -1))

    profile = PrecisionProfile("fp32", "fp32", p="fp32", tiles=4)
    strided = CheckPlan((PlannedCheck(problem, "randn", profile, strided=True),))
    assert check(attention, ATTENTION, strided, "cpu", 0).passed
    wrong = check(functools.partial(attention, contiguous=True), ATTENTION, strided, "cpu", 0)
    assert not wrong.passed and wrong.families[0].family == "randn (strided)"


def test_a_large_output_that_is_wrong_where_nothing_is_compared_breaks_the_invariant(monkeypatch):
    from tuner.operators import row_blocks

    monkeypatch.setattr(row_blocks, "_WHOLE", 1000)
    monkeypatch.setattr(row_blocks, "_SELECTED", 16 * 300)

    def misses_a_row(x, out):
        honest(x, out)
        out[2] = 0.0  # the rows 0, 4, 8, ... are compared

    checks = CheckPlan(
        (PlannedCheck(SOFTMAX.problem({"rows": 64, "cols": 300}, "bf16"), "randn", PROFILE, thorough=True),)
    )
    assert check(honest, SOFTMAX, checks, "cpu", 0).passed
    report = check(misses_a_row, SOFTMAX, checks, "cpu", 0)
    assert not report.passed and "every row sums to 1: not so" in report.reason


def test_a_nan_where_nothing_is_compared_is_caught(monkeypatch):
    from tuner.operators import row_blocks

    monkeypatch.setattr(row_blocks, "_WHOLE", 1000)
    monkeypatch.setattr(row_blocks, "_SELECTED", 16 * 300)

    def gives_nan(x, out):
        honest(x, out)
        out[2, 7] = float("nan")  # the rows 0, 4, 8, ... are compared

    assert run(honest).passed
    assert failure(gives_nan).reason == "out: NaN (or never written) at 1 of 19200 elements where none belongs"


def test_a_write_beyond_the_output_is_caught_on_every_side():
    def beyond(offset):
        def launch(x, out):
            honest(x, out)
            flat = out.as_strided((1,), (1,), out.storage_offset() + offset)
            flat.fill_(0.0)

        return launch

    assert "before the output (nearest 1 from its edge)" in failure(beyond(-1)).reason
    assert "after the output" in failure(beyond(64 * 320)).reason
    assert "between the rows of the output" in failure(beyond(310)).reason


def test_a_changed_input_is_caught_and_not_kept():
    def changes(x, out):
        honest(x, out)
        x[0, 0] += 1.0

    cache = ReferenceCache()
    assert run(changes, cache=cache).reason.endswith("the input x was changed, or what surrounds it")
    assert run(honest, cache=cache).passed


def test_an_input_that_is_changed_by_the_second_launch_alone_is_caught():
    calls = []

    def changes(x, out):
        honest(x, out)
        calls.append(None)
        if len(calls) == 2:
            x[0, 0] += 1.0

    assert failure(changes).reason == "the input x was changed, or what surrounds it"


def test_a_read_beyond_the_input_meets_nan():
    def reads_on(x, out):
        wide = x.as_strided((x.shape[0], x.shape[1] + 1), x.stride(), x.storage_offset())
        out.copy_(torch.softmax(wide.float(), dim=1)[:, :-1])

    assert "NaN" in failure(reads_on).reason


def test_a_launch_that_gives_other_bits_the_second_time_is_caught():
    calls = []

    def wavers(x, out):
        honest(x, out)
        calls.append(None)
        if len(calls) % 2 == 0:
            out[3, 3] = torch.nextafter(out[3, 3], torch.tensor(0.0, dtype=out.dtype))

    reason = failure(wavers).reason
    assert "at another address, with the last program first, gave other bits at 1 of 19200 elements" in reason


def test_adding_to_what_the_output_held_is_caught():
    def accumulates(x, out):
        out.copy_(out.nan_to_num(0.0) * 1e-35 + torch.softmax(x.float(), dim=1))

    assert not run(accumulates).passed


def test_a_sum_in_low_precision_over_a_long_row_falls_to_the_rms_check():
    problem = ATTENTION.problem({"batch": 1, "heads": 1, "q_len": 64, "kv_len": 8192, "head_dim": 32}, "bf16")
    profile = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=128)

    def attention(low):
        def launch(q, k, v, out, lse, scale):
            s = scale * q.float() @ k.float().transpose(2, 3)
            m, l, acc = s.amax(-1, keepdim=True), 0.0, torch.zeros(1, 1, 64, 32)  # noqa: E741
            for start in range(0, 8192, 64):
                p = (s[..., start : start + 64] - m).exp()
                l = l + p.sum(-1, keepdim=True)  # noqa: E741
                acc = acc + p.to(v.dtype).float() @ v[:, :, start : start + 64].float()
                acc = acc.to(torch.bfloat16).float() if low else acc
            out.copy_(acc / l)
            lse.copy_((m + l.log())[..., 0])

        return launch

    checks = CheckPlan((PlannedCheck(problem, "randn", profile),))
    assert check(attention(False), ATTENTION, checks, "cpu", 0).passed
    report = check(attention(True), ATTENTION, checks, "cpu", 0)
    assert not report.passed and "root-mean-square" in report.reason
    assert report.worst_ratio < 1.0


def test_what_a_launch_raises_propagates():
    def broken(x, out):
        raise RuntimeError("out of resources")

    with pytest.raises(RuntimeError, match="out of resources"):
        run(broken)


def test_references_are_computed_once_for_many_configs():
    cache = ReferenceCache()
    run(honest, ("randn", "huge"), cache=cache)
    missed = cache.misses
    run(honest, ("randn", "huge"), cache=cache)
    assert cache.misses == missed == 6  # inputs and reference of each family, and places for inputs and for outputs


def test_the_cache_stays_within_its_bound():
    cache = ReferenceCache(limit_bytes=400_000)
    run(honest, SOFTMAX.families(PROBLEM), cache=cache)
    assert 0 < cache.nbytes <= 400_000


def test_a_plan_checks_every_family_first_where_it_is_cheap_and_ends_at_full_size():
    problem = ATTENTION.problem({"batch": 4, "heads": 32, "q_len": 4096, "head_dim": 64}, "fp16", {"causal": True})
    profile = PrecisionProfile("fp16", "fp16", p="fp16", dot="16bit", tiles=64)
    tiles = {"q_len": 128, "kv_len": 64}
    full = plan(ATTENTION, problem, tiles, {}, profile, full_size=True)
    count = len(ATTENTION.families(problem))
    assert [c.family for c in full.checks[:count]] == list(ATTENTION.families(problem))
    # There a launch is dear: one family is launched again, and neither of them in ways that wait for the GPU.
    assert [(c.problem, c.family, c.profile.tiles, c.repeat, c.full_size) for c in full.checks[-2:]] == [
        (problem, "randn", 64, True, True),
        (problem, "needle", 64, False, True),
    ]
    assert not any(c.full_size for c in full.checks[:-2]) and all(c.repeat or c.strided for c in full.checks[:-2])
    # The bound's number of tiles is the small problem's own.
    assert full.checks[0].profile.tiles == -(-full.checks[0].problem.sizes["kv_len"] // 64)
    interpreted = plan(ATTENTION, problem, tiles, {}, profile, full_size=False)
    assert problem not in {c.problem for c in interpreted.checks}


def test_splits_beyond_the_tiles_stay_in_the_profile_of_small_problems():
    problem = SOFTMAX.problem({"rows": 8, "cols": 4096}, "bf16")
    profile = PrecisionProfile("bf16", "bf16", tiles=4 + 3)
    first = plan(SOFTMAX, problem, {"cols": 1024}, {}, profile, full_size=True).checks[0]
    assert first.profile.tiles == 4 + 3 and first.problem.sizes["cols"] == 3424


def test_an_empty_plan_cannot_be_made():
    with pytest.raises(ValueError, match="at least one check"):
        CheckPlan(())


def test_outputs_are_compared_again_after_timing():
    inputs = SOFTMAX.timing_inputs(PROBLEM, 5, "cpu")
    outputs = {"out": torch.empty(64, 300, dtype=torch.bfloat16)}
    honest(inputs["x"], outputs["out"])
    options = {"name": "timing", "seed": 5, "device": "cpu", "cache": ReferenceCache()}
    assert recheck(SOFTMAX, PROBLEM, PROFILE, inputs, outputs, **options).passed
    outputs["out"][5, 7] = 0.5
    again = recheck(SOFTMAX, PROBLEM, PROFILE, inputs, outputs, **options)
    assert not again.passed and again.where == (5, 7) and options["cache"].hits == 1
    outputs["out"][5, 7] = float("nan")
    assert "NaN at 1 elements" in recheck(SOFTMAX, PROBLEM, PROFILE, inputs, outputs, **options).reason


def test_guarded_outputs_keep_alignment_and_strides_and_start_as_poison():
    specs = {"out": OutputSpec((3, 5), "bf16", (8, 1)), "lse": OutputSpec((3,), "fp32"), "h": OutputSpec((4,), "fp16")}
    guarded = GuardedOutputs(specs, "cpu", 3)
    for number in range(3):
        guarded.poison(number)
    first, second, third = guarded.tensors
    assert first["out"].stride() == (8, 1) and first["lse"].dtype == torch.float32
    assert all(t.data_ptr() % 16 == 0 for tensors in guarded.tensors for t in tensors.values())
    assert all(bool(t.isnan().all()) for t in (*first.values(), *third.values()))
    assert all(bool(torch.isfinite(t).all() & (t > 5e4).all()) for t in second.values())
    assert all(bool(guarded.left(number, name).all()) for number in range(3) for name in specs)
    assert guarded.violations().item() == 0
    assert [guarded.describe_violation(number) for number in range(3)] == ["", "", ""]


def test_guarded_integers_start_as_numbers_that_no_index_is():
    guarded = GuardedOutputs({"values": OutputSpec((3, 5), "bf16"), "indices": OutputSpec((3, 5), "int64")}, "cpu", 2)
    for number in range(2):
        guarded.poison(number)
    first, second = (tensors["indices"] for tensors in guarded.tensors)
    assert first.dtype == torch.int64 and first.data_ptr() % 16 == 0
    assert bool((first < -(2**50)).all()) and bool((second > 2**50).all())
    first[1, 2] = 4
    left = [guarded.left(number, "indices") for number in range(2)]
    assert int(left[0].sum()) == 14 and not left[0][1, 2] and bool(left[1].all())
    assert guarded.violations().item() == 0
    first.as_strided((1,), (1,), first.storage_offset() + 15).fill_(4)
    assert "1 elements were written after the output" in guarded.describe_violation(0)


def test_differences_of_guarded_outputs_are_counted_whatever_their_poison():
    specs = {"out": OutputSpec((3, 5), "bf16", (8, 1)), "lse": OutputSpec((3,), "fp32")}
    guarded = GuardedOutputs(specs, "cpu", 3)
    for number, tensors in enumerate(guarded.tensors):
        guarded.poison(number)
        for tensor in tensors.values():
            tensor.fill_(1.0)
    assert guarded.differences().tolist() == [guarded.unlike(1), guarded.unlike(2)]
    guarded.tensors[1]["out"][2, 4] = 2.0
    guarded.tensors[2]["lse"][1] = 2.0
    assert guarded.differences().tolist() == [guarded.unlike(1) + 1, guarded.unlike(2) + 1]
    assert guarded.violations().item() == 0
    guarded.tensors[1]["out"].as_strided((1,), (1,), guarded.tensors[1]["out"].storage_offset() + 6).fill_(3.0)
    assert guarded.violations().item() == 1
    assert guarded.describe_violation(0) == "" and "between the rows of" in guarded.describe_violation(1)


@pytest.mark.parametrize("copied", [True, False])
def test_guarded_inputs_are_copies_in_a_sea_of_nan(copied, monkeypatch):
    if not copied:
        monkeypatch.setattr("tuner.guarded._COPIED_BYTES", 0)
    inputs = {"x": torch.randn(4, 6), "y": torch.zeros(12, dtype=torch.float16).as_strided((3, 2), (5, 1))}
    guarded = GuardedInputs(inputs)
    for name, tensor in inputs.items():
        guarded.given[name].copy_(tensor)
    for place in (0, 1):
        guarded.fill(place)
        for name, tensor in inputs.items():
            copy = guarded.places[place][name]
            assert torch.equal(copy, tensor) and copy.stride() == tensor.stride() and copy.data_ptr() % 16 == 0
            before = copy.as_strided((512,), (1,), copy.storage_offset() - 512)
            assert bool(before.isnan().all())
    assert guarded.changes(1).item() == guarded.changes(2).item() == 0
    guarded.places[1]["y"][0, 0] = 1.0
    assert (guarded.changes(1).item(), guarded.changes(2).item()) == (0, 1)
    assert guarded.changed() == "y"
    guarded.wipe(1)
    assert bool(guarded.places[1]["x"].isnan().all())


@pytest.mark.parametrize("shape", [(64, 128), (7, 13), (2, 3, 64, 16)])
def test_a_checksum_changes_with_any_single_element(shape):
    x = torch.randn(shape)
    before = checksum(x)
    assert torch.equal(before, checksum(x.clone()))
    x.view(-1)[x.numel() // 3] += 0.5
    assert not torch.equal(before, checksum(x))
