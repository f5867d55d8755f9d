"""The static estimate: what it says, and that it moves the right way."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import TargetError
from tuner.estimating import Figures, estimate
from tuner.targets import target
from tuner.trial import CompileReport, KernelResources

H200 = target("h200")

# softmax 4096 x 4096 in bf16: read and written once
SOFTMAX = Figures(flops=5 * 4096 * 4096, bytes_moved=2 * 2 * 4096 * 4096, exponentials=4096 * 4096)
ROW = KernelResources("softmax", registers=40, spill_bytes=0, shared_bytes=64, threads=256)
ROW_COUNTS = {"total": 200, "ld_global_128": 2, "st_global_128": 2, "ex2": 16}

# attention 4 x 32 x 4096 x 128: two products
ATTENTION = Figures(
    flops=4.0 * 4 * 32 * 4096 * 4096 * 128,
    bytes_moved=4 * 4 * 32 * 4096 * 128 * 2,
    exponentials=4.0 * 32 * 4096 * 4096,
)
# As Triton 3.9 compiles the template `pointer` over 128 x 64 tiles with 8 warps and 3 stages for sm_90: two loops, with
# and without a mask
TILE = KernelResources("attention", registers=163, spill_bytes=0, shared_bytes=131_072, threads=256)
TILE_COUNTS = {
    "total": 1555,
    "mma": 24,
    "mma_flops": 1_048_576,
    "wgmma": 24,
    "ex2": 68,
    "cp_async_128": 48,
    "ld_global_128": 8,
    "st_global_128": 8,
    "st_global_32": 1,
    "loop.total": 885,
    "loop.mma": 24,
    "loop.wgmma": 24,
    "loop.mma_flops": 1_048_576,
    "loop.ex2": 68,
    "loop.cp_async_128": 16,
}
TILES = 4 * 32 * 4096 // 128


def report(kernel, counts, kernels=1):
    return CompileReport("hash", (kernel,) * kernels, 1.0, tuple(sorted(counts.items())))


def softmax(kernel=ROW, counts=ROW_COUNTS, device=H200, programs=4096, figures=SOFTMAX):
    return estimate(figures, report(kernel, counts), device, programs)


def attention(kernel=TILE, counts=TILE_COUNTS, device=H200, programs=TILES):
    return estimate(ATTENTION, report(kernel, counts), device, programs)


def test_softmax_is_limited_by_memory_near_the_bandwidth():
    found = softmax()
    assert found.limiter == "memory"
    roofline_us = SOFTMAX.bytes_moved / 4.8e12 * 1e6
    assert roofline_us < found.us < 2.5 * roofline_us


def test_attention_is_limited_by_arithmetic_below_the_peak():
    found = attention()
    assert found.limiter == "tensor"
    measured_us = 2296  # on an H200
    assert measured_us / 1.3 < found.us < 1.3 * measured_us


def test_an_estimate_is_stored_as_one():
    found = softmax()
    measurement = found.measurement()
    assert (measurement.stage, measurement.protocol) == ("estimate", "estimate-2")
    assert measurement.samples_us == (found.us,)
    assert measurement.median_us == measurement.low_us == measurement.high_us == found.us
    assert measurement.notes[0] == "estimated"
    assert "limited by memory" in measurement.notes


def test_the_terms_add_up_to_the_time():
    found = attention()
    parts = found.terms[found.limiter] + found.terms["exposed"] + found.terms["spills"]
    assert found.us == pytest.approx(found.terms["launch"] + found.terms["scale"] * parts)


def test_programs_that_stay_lose_by_unequal_work():
    uneven = replace(ATTENTION, uneven=True)
    once = [estimate(figures, report(TILE, TILE_COUNTS), H200, 132) for figures in (ATTENTION, uneven)]
    assert once[1].us > 1.2 * once[0].us
    by_and_by = [estimate(figures, report(TILE, TILE_COUNTS), H200, TILES) for figures in (ATTENTION, uneven)]
    assert by_and_by[1].us == by_and_by[0].us


@given(st.integers(min_value=0, max_value=2000), st.integers(min_value=1, max_value=2000))
def test_more_spills_are_slower(spill, more):
    assert attention(replace(TILE, spill_bytes=spill + more)).us > attention(replace(TILE, spill_bytes=spill)).us


@given(
    st.integers(min_value=16, max_value=254),
    st.integers(min_value=0, max_value=200_000),
    st.sampled_from([32, 64, 128, 256]),
    st.integers(min_value=1, max_value=20_000),
)
def test_more_registers_are_never_faster(registers, shared, threads, programs):
    kernel = KernelResources("k", registers, 0, shared, threads)
    hungrier = replace(kernel, registers=registers + 1)
    assert softmax(hungrier, programs=programs).us >= softmax(kernel, programs=programs).us


@given(st.integers(min_value=0, max_value=230_000), st.integers(min_value=1, max_value=20_000))
def test_more_shared_memory_that_lowers_the_occupancy_is_never_faster(shared, programs):
    kernel = replace(ROW, shared_bytes=shared)
    hungrier = replace(ROW, shared_bytes=min(232_448, shared + 1500))
    assert softmax(hungrier, programs=programs).us >= softmax(kernel, programs=programs).us


def test_lower_occupancy_is_slower_for_a_memory_bound_kernel():
    low, high = softmax(replace(ROW, registers=200)), softmax()
    assert low.us > high.us
    assert low.terms["blocks_per_sm"] < high.terms["blocks_per_sm"]
    assert low.terms["memory"] > high.terms["memory"]


def test_narrow_accesses_are_slower():
    narrow = {**ROW_COUNTS, "ld_global_128": 0, "st_global_128": 0, "ld_global_16": 16, "st_global_16": 16}
    assert softmax(counts=narrow).us > softmax().us


def test_mma_sync_is_slower_than_wgmma_on_hopper():
    counts = {k: v for k, v in TILE_COUNTS.items() if k != "wgmma"}
    assert attention(counts=counts).us > attention().us


def test_mma_sync_is_the_native_instruction_of_consumer_parts():
    counts = {k: v for k, v in TILE_COUNTS.items() if k != "wgmma"}
    kernel = replace(TILE, shared_bytes=90_000)
    found = attention(kernel, counts, device=target("rtx4090"))
    ideal_us = ATTENTION.flops / 165.2e12 * 1e6
    assert found.terms["tensor"] < 1.4 * ideal_us


def test_an_uneven_last_wave_costs():
    fitting, one_more = attention(programs=132 * 4), attention(programs=132 * 4 + 1)
    assert one_more.terms["tensor"] > 1.2 * fitting.terms["tensor"]


def test_more_work_in_the_loop_is_never_faster():
    busier = {**TILE_COUNTS, "total": 2400, "loop.total": 1315}
    assert attention(counts=busier).us > attention().us


@given(st.floats(min_value=1.0, max_value=100.0))
def test_more_bytes_are_never_faster(factor):
    more = replace(SOFTMAX, bytes_moved=SOFTMAX.bytes_moved * factor)
    assert softmax(figures=more).us >= softmax().us


def test_a_card_with_more_bandwidth_is_faster_at_memory_bound_work():
    assert softmax(device=H200).us < softmax(device=target("h100")).us < softmax(device=target("l4")).us


def test_a_long_chain_of_loads_in_one_block_is_limited_by_latency():
    # one row of 2^20 bf16 numbers, 16 bytes a thread and iteration: 1024 iterations of 0.7 us
    figures = Figures(flops=1.0, bytes_moved=2 * 2 * 2**20)
    counts = {"total": 60, "ld_global_128": 1, "loop.ld_global_128": 1, "loop.total": 20}
    found = softmax(counts=counts, programs=1, figures=figures)
    assert found.limiter == "latency"
    assert found.terms["latency"] == pytest.approx(1024 * 0.7)


def test_two_kernels_are_launched_twice():
    once = estimate(SOFTMAX, report(ROW, ROW_COUNTS), H200, 4096)
    twice = estimate(SOFTMAX, report(ROW, ROW_COUNTS, kernels=2), H200, 4096)
    assert twice.terms["launch"] == 2 * once.terms["launch"]


def test_amd_devices_are_estimated_too():
    kernel = KernelResources("softmax", 32, 0, 64, 256)
    assert softmax(kernel, device=target("mi300x")).limiter == "memory"


def test_without_counts_the_roofline_remains():
    assert softmax(counts={}).us > SOFTMAX.bytes_moved / 4.8e12 * 1e6


def test_a_kernel_that_does_not_fit_has_no_estimate():
    with pytest.raises(ValueError, match="does not fit on NVIDIA L4"):
        softmax(replace(ROW, shared_bytes=150_000), device=target("l4"))


def test_a_device_without_rates_has_no_estimate():
    with pytest.raises(TargetError, match="no data-sheet rates are known for NVIDIA H200"):
        softmax(device=replace(H200, memory_bandwidth=0.0))


def test_an_empty_grid_has_no_estimate():
    with pytest.raises(ValueError, match="at least one"):
        softmax(programs=0)
