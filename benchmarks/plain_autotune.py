"""Triton's own Autotuner over the configs of our search space; logs every timing as it is made.

Run by search_speed and time_to_best: the log's path, and the problem as ``Problem.as_json()`` has it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import triton
from triton.runtime.autotuner import Autotuner
from triton.testing import do_bench

from tuner.loading import load_source
from tuner.operators import get
from tuner.operators.tensors import empty
from tuner.probe import current_device
from tuner.problem import Problem
from tuner.space import load_space
from tuner.tickets import TicketOffice
from tuner.workspace import Workspace


def main() -> None:
    """Tune as ``@triton.autotune`` would: one config after the other, in the order of the space."""
    problem = Problem.from_json(json.loads(sys.argv[2]))
    operator = get(problem.operator)
    device = current_device()
    assert device is not None
    bound = load_space(problem.operator).bind(problem, device, gpu=True, triton_version=triton.__version__)
    office = TicketOffice(bound, Workspace(), triton.__version__)
    configs = list(bound.configs())
    tensors: dict[str, Any] = dict(operator.timing_inputs(problem, 0, "cuda"))
    for name, spec in operator.output_specs(problem).items():
        tensors[name] = empty(spec.shape, spec.dtype, "cuda", spec.strides)
    tried: list[int] = []
    started = time.monotonic()

    class Launcher:
        """What the Autotuner takes for a kernel."""

        arg_names = ("number",)

        @staticmethod
        def fn(number: int) -> None:
            """Only its signature is looked at."""

        def run(self, *args: Any, number_of_config: int, **kwargs: Any) -> None:
            config = configs[number_of_config]
            tried.append(number_of_config)
            module = load_source(Path(office.candidate(config).source_path))
            module.launch(**tensors, **operator.scalars(problem), **bound.launch_arguments(config))

    def logging_bench(call: Any, quantiles: Any = None) -> Any:
        times = do_bench(call, quantiles=quantiles)
        with Path(sys.argv[1]).open("a") as log:
            line = {"seconds": time.monotonic() - started, "us": 1e3 * times[0], "config": configs[tried[-1]].key}
            log.write(json.dumps(line) + "\n")
        return times

    options = [triton.Config({"number_of_config": i}) for i in range(len(configs))]
    tuned = Autotuner(Launcher(), ["number"], options, ["number"], None, None, do_bench=logging_bench)
    tuned.run(0, grid=(1,), warmup=False)


if __name__ == "__main__":
    main()
