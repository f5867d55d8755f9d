"""A static estimate of a kernel's time, for ranking configs where there is no GPU. It is never a measurement.

A roofline with one term a resource (memory, tensor cores, exponentials, instruction issue, latency), each made worse
by what the compiled kernel shows: few bytes in flight, narrow accesses, low occupancy, an uneven last wave, spills. The
terms overlap the more, the more warps and blocks an SM holds. Constants are in ``CONSTANTS``, each with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.device import Device
from tuner.errors import TargetError
from tuner.occupancy import blocks_per_sm
from tuner.protocols import ESTIMATE_PROTOCOL
from tuner.trial import CompileReport, KernelResources, Measurement


@dataclass(frozen=True)
class Constants:
    """Every constant of the estimate, with its reason. Efficiencies are shares of the data-sheet rate."""

    # One kernel in a replayed graph: measured launch-to-launch floors on A100 to H200 are 1.5 to 3 us.
    launch_us: float = 2.0
    # A large copy reaches 0.88 to 0.93 of the data-sheet bandwidth (refresh, read-write turnaround).
    memory: float = 0.92
    # Loaded DRAM latency; with the bandwidth it gives the bytes that must be in flight (Little's law).
    latency_us: float = 0.7
    # What remains of the latency per iteration when copies run ahead (cp.async, TMA): barrier and issue.
    pipelined_latency_us: float = 0.15
    # An iteration with matrix products is a chain (operands, first product, row maximum, exponentials, second product,
    # barriers) that one block goes through step by step: this many times those latencies, fitted to attention.
    matrix_chain: float = 4.0
    # Matrix rates reached by good kernels: wgmma/tcgen05 about 0.75 of dense on random data (power); mma.sync reaches
    # 0.6 of it on Hopper and later, and 0.8 where it is the native instruction; MFMA about 0.55 of MI300X's figure.
    wgmma: float = 0.75
    mma_sync_legacy: float = 0.60
    mma_sync_native: float = 0.80
    mfma: float = 0.55
    # Products without matrix instructions, and plain fp32 work: fused multiply-adds are about half of what is issued.
    fp32: float = 0.5
    # MUFU pipe, shared with conversions of type and shape.
    exp2: float = 0.8
    # Issue slots that a kernel with dependent instructions fills.
    issue: float = 0.7
    # Warps per SM at which the arithmetic pipes are well fed: one a scheduler gives 0.84, two give 0.98 of the rate
    # (matrix instructions are long, and wgmma is asynchronous, so few warps suffice).
    warps_to_fill: float = 4.0
    # Share of the smaller terms that is not hidden: this over the warps per SM (0.6 with 4 warps, 0.15 with 16).
    overlap_warps: float = 2.4
    # With matrix products a block's warps go in step, so that blocks hide more than warps: nothing with one block of
    # four warps, and then by these powers of the blocks per SM and of the fours of warps in a block. With terms added
    # so, the sum ranks well and is too large: the last factor brings it to what was measured. Fitted to attention.
    overlap_blocks_power: float = 0.5
    overlap_block_warps_power: float = 0.2
    matrix_scale: float = 0.7
    # Programs that stay, one wave of them, and share unequal work end at different times; 1.1 to 1.5 was seen.
    uneven: float = 1.25
    # Local memory goes through L1: bytes a clock and SM for a spilled value's store and load.
    spill_bytes_per_clock: float = 43.0


CONSTANTS = Constants()

# Share of the achievable bandwidth by bits per thread and access: below 128 bits, more instructions and more requests
# in the load-store unit carry the same bytes.
WIDTH_EFFICIENCY = {128: 1.0, 64: 0.95, 32: 0.85, 16: 0.6, 8: 0.4}


@dataclass(frozen=True)
class Figures:
    """What a problem costs at least: floating-point operations, bytes moved to and from memory, exponentials.

    ``uneven``: some parts of the output take more work than others of the same size, as under a causal mask.
    """

    flops: float
    bytes_moved: float
    exponentials: float = 0.0
    uneven: bool = False


@dataclass(frozen=True)
class Estimate:
    """An estimated time in microseconds. ``terms`` (microseconds, and shares behind them) say where it comes from."""

    us: float
    terms: Mapping[str, float]

    @property
    def limiter(self) -> str:
        """The largest of the overlapping terms: ``memory``, ``tensor``, ``fp32``, ``exp2``, ``issue``, ``latency``."""
        return max(OVERLAPPING, key=lambda name: self.terms.get(name, 0.0))

    def measurement(self) -> Measurement:
        """As it is stored: stage and protocol say that it is an estimate."""
        shown = ", ".join(f"{name} {value:.3g}" for name, value in self.terms.items())
        notes = ("estimated", f"limited by {self.limiter}", shown)
        return Measurement("estimate", ESTIMATE_PROTOCOL, (self.us,), self.us, self.us, self.us, notes=notes)


OVERLAPPING = ("memory", "tensor", "fp32", "exp2", "issue", "latency")
"""Terms that run beside one another. Launch and spills are added."""


def estimate(figures: Figures, report: CompileReport, device: Device, programs: int) -> Estimate:
    """The estimated time of one call of ``report``'s kernels with ``programs`` blocks on ``device``.

    ``report.instructions`` are summed over its kernels. Raises ``ValueError`` where a kernel does not fit the device,
    and ``TargetError`` where the device's rates are unknown.
    """
    if programs < 1 or not report.kernels:
        raise ValueError(f"an estimate needs at least one kernel and one block, but got {programs} blocks")
    if not (device.memory_bandwidth and device.tensor_flops and device.fp32_flops and device.exp2_rate):
        raise TargetError(f"no data-sheet rates are known for {device.name}; name a known target to estimate for")
    kernel = min(report.kernels, key=lambda k: (blocks_per_sm(k, device), -k.spill_bytes))
    resident = blocks_per_sm(kernel, device)
    if resident == 0:
        raise ValueError(f"{kernel.name} does not fit on {device.name}; refuse it before estimating")
    work = _Work.of(dict(report.instructions), kernel, device, figures, programs)
    # The SM with the most blocks decides; blocks beyond those resident wait their turn.
    per_sm = math.ceil(programs / device.sms)
    balance = programs / (device.sms * per_sm)
    warps = min(resident, per_sm) * kernel.threads / device.warp_size
    filled = _saturating(warps / CONSTANTS.warps_to_fill)

    needed = device.memory_bandwidth / device.sms * CONSTANTS.latency_us * 1e-6
    in_flight = _saturating(min(resident, per_sm) * kernel.threads * work.bytes_in_flight / needed)
    # Memory is shared by all SMs: an idle one leaves its share to the others, up to what those can request.
    busy = min(1.0, programs / device.sms)
    memory_share = CONSTANTS.memory * work.width_efficiency * min(in_flight, _saturating(2 * busy))
    clock = device.exp2_rate / device.sms / 16
    schedulers = 4 if device.backend == "cuda" else 1

    terms = {
        "memory": _us(figures.bytes_moved, device.memory_bandwidth * memory_share),
        "tensor": 0.0,
        "fp32": 0.0,
        "exp2": _us(max(figures.exponentials, work.exponentials), device.exp2_rate * CONSTANTS.exp2 * balance),
        "issue": _us(work.issued, device.sms * schedulers * clock * CONSTANTS.issue * balance),
        "latency": work.trips * work.trip_latency_us * math.ceil(per_sm / resident),
    }
    if work.matrix_efficiency:
        terms["tensor"] = _us(figures.flops, device.tensor_flops * work.matrix_efficiency * filled * balance)
    else:
        terms["fp32"] = _us(figures.flops, device.fp32_flops * CONSTANTS.fp32 * filled * balance)

    longest = max(terms.values())
    exposed = _exposed_share(work, kernel, device, min(resident, per_sm)) * (sum(terms.values()) - longest)
    spilled = 2.0 * kernel.spill_bytes * kernel.threads * programs * work.trips
    spills = _us(spilled, device.sms * clock * CONSTANTS.spill_bytes_per_clock * balance)
    launch = CONSTANTS.launch_us * len(report.kernels)
    stays = figures.uneven and per_sm <= resident
    scale = (CONSTANTS.uneven if stays else 1.0) * (CONSTANTS.matrix_scale if work.matrix_efficiency else 1.0)
    us = launch + scale * (longest + exposed + spills)
    shares = {
        "blocks_per_sm": float(resident),
        "waves": per_sm / resident,
        "memory_share": memory_share,
        "scale": scale,
    }
    return Estimate(us, {"launch": launch, **terms, "exposed": exposed, "spills": spills, **shares})


@dataclass(frozen=True)
class _Work:
    """What the instructions say that the kernel does, in total over the grid (``issued``: warp instructions)."""

    trips: float
    issued: float
    exponentials: float
    bytes_in_flight: float
    width_efficiency: float
    trip_latency_us: float
    matrix_efficiency: float

    @classmethod
    def of(
        cls, counts: Mapping[str, int], kernel: KernelResources, device: Device, figures: Figures, programs: int
    ) -> _Work:
        warps = programs * kernel.threads / device.warp_size
        loop = {name.removeprefix("loop."): n for name, n in counts.items() if name.startswith("loop.")}
        loop_bytes, all_bytes = _global_bytes(loop), _global_bytes(counts)
        # Iterations of the innermost loop follow from the work that one iteration does.
        if loop.get("mma_flops"):
            trips = figures.flops / (warps * loop["mma_flops"])
        elif loop_bytes:
            trips = figures.bytes_moved / (programs * kernel.threads * loop_bytes)
        else:
            trips = 1.0
        trips = max(1.0, trips)

        def executed(kind: str) -> float:
            inside = loop.get(kind, 0)
            return warps * (counts.get(kind, 0) - inside + trips * inside)

        copies_ahead = any(n and (kind.startswith("cp_async") or kind == "tma_load") for kind, n in counts.items())
        # Copies that run ahead have their buffers in shared memory in flight, other loads those of one iteration.
        staged = kernel.shared_bytes / kernel.threads if copies_ahead else 0.0
        # Without counts (no assembly text) assume one 16-byte access a thread.
        per_thread = max(staged, float(loop_bytes or all_bytes or 16))
        return cls(
            trips=trips,
            issued=executed("total"),
            exponentials=executed("ex2") * device.warp_size,
            bytes_in_flight=per_thread,
            width_efficiency=_width_efficiency(counts),
            trip_latency_us=(CONSTANTS.pipelined_latency_us if copies_ahead else CONSTANTS.latency_us)
            * (CONSTANTS.matrix_chain if loop.get("mma") else 1.0),
            matrix_efficiency=_matrix_efficiency(counts, device),
        )


def _exposed_share(work: _Work, kernel: KernelResources, device: Device, blocks: int) -> float:
    """The share of what is not the longest term that nothing hides, with so many blocks on an SM."""
    warps = kernel.threads / device.warp_size
    if not work.matrix_efficiency:
        return min(1.0, CONSTANTS.overlap_warps / (blocks * warps))
    hidden = blocks**CONSTANTS.overlap_blocks_power * max(1.0, warps / 4) ** CONSTANTS.overlap_block_warps_power
    return float(1.0 / hidden)


def _matrix_efficiency(counts: Mapping[str, int], device: Device) -> float:
    if not counts.get("mma"):
        return 0.0
    if device.backend == "hip":
        return CONSTANTS.mfma
    if counts.get("wgmma") or counts.get("tcgen05"):
        return CONSTANTS.wgmma
    # Only the data-centre parts from sm_90 on have faster matrix instructions than mma.sync.
    return CONSTANTS.mma_sync_legacy if device.facts["capability"] in (90, 100) else CONSTANTS.mma_sync_native


def _widths(counts: Mapping[str, int]) -> dict[int, int]:
    """Accesses to global memory by bits."""
    widths: dict[int, int] = {}
    for kind, n in counts.items():
        if kind.startswith(("ld_global_", "st_global_", "cp_async_")):
            bits = int(kind.rsplit("_", 1)[1])
            widths[bits] = widths.get(bits, 0) + n
    return widths


def _global_bytes(counts: Mapping[str, int]) -> float:
    return sum(bits / 8 * n for bits, n in _widths(counts).items())


def _width_efficiency(counts: Mapping[str, int]) -> float:
    """The efficiency of each width, weighted by the bytes that it carries; 1 where bulk copies or nothing is seen."""
    widths = _widths(counts)
    carried = sum(bits * n for bits, n in widths.items())
    if not carried:
        return 1.0

    def efficiency(bits: int) -> float:
        return WIDTH_EFFICIENCY[max((w for w in WIDTH_EFFICIENCY if w <= bits), default=8)]

    return sum(efficiency(bits) * bits * n for bits, n in widths.items()) / carried


def _saturating(x: float) -> float:
    """x for small x, 1 for large x, strictly increasing between."""
    return float(x / (1.0 + x**4) ** 0.25)


def _us(amount: float, rate: float) -> float:
    return 1e6 * amount / rate
