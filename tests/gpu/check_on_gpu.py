"""Checks on a GPU, each named on the command line; prints one JSON object. A process of its own: it starts CUDA."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from tuner.check_plan import CheckPlan, PlannedCheck
from tuner.checking import check
from tuner.evaluating import Candidate
from tuner.exponential_error import exponential_error
from tuner.gpu_desk import GpuDesk
from tuner.launches import CudaGpu
from tuner.operators import get
from tuner.precision import PrecisionProfile
from tuner.probe import current_device
from tuner.rendering import render
from tuner.space import load_space
from tuner.toolchain import triton_version
from tuner.trial import CheckReport

SOFTMAX = get("softmax")
PROBLEM = SOFTMAX.problem({"rows": 512, "cols": 4096}, "bf16")
FULL_SIZE = SOFTMAX.problem({"rows": 2048, "cols": 4096}, "bf16")
KEPT: dict[int, torch.Tensor] = {}
CALLS: list[None] = []
OWN_STREAM: Any = None


def honest(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(torch.softmax(x.float(), dim=1))


def on_a_stream_of_its_own(x: torch.Tensor, out: torch.Tensor) -> None:
    global OWN_STREAM
    OWN_STREAM = OWN_STREAM or torch.cuda.Stream()
    with torch.cuda.stream(OWN_STREAM):
        honest(x, out)


def leaves_its_stream(x: torch.Tensor, out: torch.Tensor) -> None:
    honest(x, out)
    torch.cuda.set_stream(torch.cuda.Stream())


def keeps_by_address(x: torch.Tensor, out: torch.Tensor) -> None:
    if x.data_ptr() not in KEPT:
        KEPT[x.data_ptr()] = torch.softmax(x.float(), dim=1).to(out.dtype)
    out.copy_(KEPT[x.data_ptr()])


def reads_on_the_host(x: torch.Tensor, out: torch.Tensor) -> None:
    float(x[0, 0])  # cannot be captured
    honest(x, out)


def reads_scratch_first(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(torch.softmax(x.float(), dim=1) + 0 * torch.empty_like(x, dtype=torch.float32))


def leaves_its_stream_on_large_numbers(x: torch.Tensor, out: torch.Tensor) -> None:
    honest(x, out)
    if float(x.abs().amax()) > 100.0:
        torch.cuda.set_stream(torch.cuda.Stream())


def wavers_at_full_size(x: torch.Tensor, out: torch.Tensor) -> None:
    honest(x, out)
    if len(x) == FULL_SIZE.sizes["rows"]:
        out[-1, -1] *= 1 + len(CALLS) / 64  # right the first time
        CALLS.append(None)


def verdict(launch: Any) -> list[Any]:
    profile = PrecisionProfile("bf16", "bf16", tiles=2)
    small = tuple(PlannedCheck(PROBLEM, family, profile, thorough=True) for family in ("randn", "huge"))
    checks = (*small, PlannedCheck(FULL_SIZE, "randn", profile, thorough=True, full_size=True))
    gpu = CudaGpu(2**26)
    report = check(launch, SOFTMAX, CheckPlan(checks), "cuda", 0, variation=7, gpu=gpu)
    torch.cuda.set_stream(torch.cuda.default_stream())
    return [report.passed, report.reason]


def shipped(
    operator: str, shape: dict[str, int], folder: Path, times: int = 1, options: dict[str, Any] | None = None
) -> list[CheckReport]:
    """The check of the plain configs of an operator, made ``times`` times."""
    device = current_device()
    assert device is not None
    problem = get(operator).problem(shape, "bf16", options)
    bound = load_space(operator).bind(problem, device)
    desk = GpuDesk(problem, device, 0)
    reports = []
    for config in bound.plain():
        variant = render(bound.template(config), dict(config.switches), triton_version())
        path = folder / f"{variant.hash}.py"
        path.write_text(variant.source, encoding="utf-8")
        candidate = Candidate(
            config.key,
            str(path),
            bound.launch_arguments(config),
            bound.tiles(config),
            bound.max_tiles(config),
            bound.precision(config),
        )
        reports += [desk.check(candidate) for _ in range(times)]
    return reports


def main(what: str, folder: Path) -> Any:
    if what == "launches":
        return {
            launch.__name__: verdict(launch)
            for launch in (
                honest, on_a_stream_of_its_own, leaves_its_stream, keeps_by_address, reads_on_the_host,
                reads_scratch_first, leaves_its_stream_on_large_numbers, wavers_at_full_size,
            )
        }  # fmt: skip
    if what == "exponential":
        return exponential_error("cuda", 1)
    if what == "large":  # more than 2^31 elements in each tensor
        reports = shipped("softmax", {"rows": 70_000, "cols": 32_768}, folder)
        return [[r.passed, r.reason, r.families[-1].problem] for r in reports]
    shape = {"batch": 4, "heads": 32, "q_len": 4096, "head_dim": 128}
    if what == "features":  # values of their own head_dim, in one part and in two, padded and not; dropout
        dims = ((192, 128), (128, 64), (80, 96))
        own = [({**shape, "head_dim": k, "v_head_dim": v}, {"causal": True}) for k, v in dims]
        given = [*own, (shape, {"causal": True, "dropout": 0.17}), (shape, {"dropout": 1.0 - 2.0**-8})]
        reports = [r for sizes, options in given for r in shipped("attention_fwd", sizes, folder, options=options)]
        return [[r.passed, r.reason, r.families[-1].problem] for r in reports]
    name = torch.cuda.get_device_name()
    return [name, [[r.passed, r.reason, r.seconds] for r in shipped("attention_fwd", shape, folder, times=3)]]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]))) + "\n")
