"""Triton's own Autotuner over the configs of our search space; logs every timing as it is made. Run by search_speed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import triton
from triton.runtime.autotuner import Autotuner
from triton.testing import do_bench

from benchmarks.problems import ATTENTION, attention_problem
from tuner.loading import load_source
from tuner.operators import get
from tuner.probe import current_device
from tuner.space import load_space
from tuner.tickets import TicketOffice
from tuner.workspace import Workspace


def main() -> None:
    """Tune as ``@triton.autotune`` would: one config after the other, in the order of the space."""
    problem, operator = attention_problem(*ATTENTION[0]), get("attention_fwd")
    device = current_device()
    assert device is not None
    bound = load_space("attention_fwd").bind(problem, device)
    office = TicketOffice(bound, Workspace(), triton.__version__)
    configs = list(bound.configs())
    tensors: dict[str, Any] = dict(operator.timing_inputs(problem, 0, "cuda"))
    for name, spec in operator.output_specs(problem).items():
        dtype = tensors["q"].dtype if spec.dtype == problem.dtype else torch.float32
        tensors[name] = torch.empty(spec.shape, dtype=dtype, device="cuda")
    started = time.monotonic()

    class Launcher:
        """What the Autotuner takes for a kernel."""

        arg_names = ("number",)

        @staticmethod
        def fn(number: int) -> None:
            """Only its signature is looked at."""

        def run(self, *args: Any, number_of_config: int, **kwargs: Any) -> None:
            config = configs[number_of_config]
            module = load_source(Path(office.candidate(config).source_path))
            module.launch(**tensors, **operator.scalars(problem), **bound.launch_arguments(config))

    def logging_bench(call: Any, quantiles: Any = None) -> Any:
        times = do_bench(call, quantiles=quantiles)
        with Path(sys.argv[1]).open("a") as log:
            log.write(json.dumps({"seconds": time.monotonic() - started, "us": 1e3 * times[0]}) + "\n")
        return times

    options = [triton.Config({"number_of_config": i}) for i in range(len(configs))]
    tuned = Autotuner(Launcher(), ["number"], options, ["number"], None, None, do_bench=logging_bench)
    tuned.run(0, grid=(1,), warmup=False)


if __name__ == "__main__":
    main()
