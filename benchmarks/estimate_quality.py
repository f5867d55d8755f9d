"""How well the static estimate ranks what a GPU has measured. Needs no GPU: it compiles for the one that measured.

    python -m benchmarks.estimate_quality --db tuner.db [--configs 60] [--workers 2]

Of every measured study, so many of its timed configs, drawn at random, are compiled for its device, and the estimate is
held against the stored times: the rank correlation (Spearman), how much slower than the best of them the estimate's
first pick is, and the same of the best of its first five.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from scipy.stats import spearmanr

import tuner
from tuner.compiling import CompileJob
from tuner.device import MEASURED, Device
from tuner.estimating import Figures, estimate
from tuner.operators import get
from tuner.problem import Problem
from tuner.rendering import render
from tuner.space import BoundSpace, load_space
from tuner.store.store import reading
from tuner.toolchain import triton_version
from tuner.trial import Outcome
from tuner.worker.messages import WorkerState

FEWEST = 20
"""Timed configs of a study that counts."""


def estimated_us(job: CompileJob) -> float | None:
    """The estimate for one config in microseconds; None where it does not compile."""
    warnings.simplefilter("ignore")
    try:
        report = job(WorkerState())
    except Exception:  # whatever the compiler raises: such a config has no estimate
        return None
    operator = get(job.problem.operator)
    figures = Figures(
        operator.flops(job.problem),
        operator.bytes_moved(job.problem),
        operator.exponentials(job.problem),
        operator.uneven(job.problem),
    )
    return estimate(figures, report, job.device, math.prod(report.grid)).us


def jobs_of(
    bound: BoundSpace, problem: Problem, device: Device, labels: list[str], folder: Path
) -> list[CompileJob | None]:
    """A job for each config; None for one that the space does not allow any more."""
    valid = {config.label: config for config in bound.configs()}
    jobs: list[CompileJob | None] = []
    for label in labels:
        config = valid.get(label)
        if config is None:
            jobs.append(None)
            continue
        variant = render(bound.template(config), dict(config.switches), triton_version())
        path = folder / f"{variant.hash}.py"
        path.write_text(variant.source, encoding="utf-8")
        jobs.append(CompileJob(str(path), bound.launch_arguments(config), problem, device, count_instructions=True))
    return jobs


def main() -> None:
    """Print a row a study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--db", required=True)
    parser.add_argument("--configs", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print("| problem | configs | rank correlation | first pick | best of first five |")
    print("|---|---|---|---|---|")
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="tuner-estimates-") as folder,
        ProcessPoolExecutor(arguments.workers, mp_context=spawn) as pool,
        reading(arguments.db) as store,
    ):
        devices = {device.name: device for device in store.history.catalogue().devices.values()}
        for study in tuner.studies(db=arguments.db):
            detail = store.study(study.name)
            timed = {t.trial.config.label: t.trial.value_us for t in detail.trials if t.trial.outcome is Outcome.TIMED}
            if study.mode != MEASURED or len(timed) < FEWEST:
                continue
            device = devices[study.device_name]
            bound = load_space(study.problem.operator).bind(study.problem, device)
            labels = sorted(timed)
            random.Random(arguments.seed).shuffle(labels)
            labels = labels[: arguments.configs]
            jobs = jobs_of(bound, study.problem, device, labels, Path(folder))
            found = pool.map(estimated_us, [job for job in jobs if job is not None])
            chosen = [label for label, job in zip(labels, jobs, strict=True) if job is not None]
            pairs = [
                (guess, timed[label] or 0.0) for label, guess in zip(chosen, found, strict=True) if guess is not None
            ]
            if len(pairs) < FEWEST:
                continue
            order = [measured for _, measured in sorted(pairs)]
            best = min(order)
            correlation = spearmanr([g for g, _ in pairs], [m for _, m in pairs]).statistic
            print(
                f"| {study.problem.label} | {len(pairs)} | {correlation:.2f} | +{100 * (order[0] / best - 1):.0f} % | "
                f"+{100 * (min(order[:5]) / best - 1):.0f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
