"""Tunes every benchmark problem into one database.

python -m benchmarks.tune_all --db tuner.db --softmax-seconds 25 --attention-seconds 45
"""

from __future__ import annotations

import argparse
import time

import tuner
from benchmarks.problems import ATTENTION, SOFTMAX, attention_problem, softmax_problem


def main() -> None:
    """Tune, and print one line a problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--db", required=True)
    parser.add_argument("--softmax-seconds", type=float, default=25.0)
    parser.add_argument("--attention-seconds", type=float, default=45.0)
    parser.add_argument("--skip-first-attention", action="store_true", help="search_speed has tuned it already")
    arguments = parser.parse_args()
    # Long rows have more templates that apply, and each config takes longer.
    problems = [(softmax_problem(*s), arguments.softmax_seconds * (1 if s[1] <= 4096 else 2)) for s in SOFTMAX]
    shapes = ATTENTION[1:] if arguments.skip_first_attention else ATTENTION
    problems += [(attention_problem(*a), arguments.attention_seconds) for a in shapes]
    with tuner.Session(db=arguments.db, gpu=True) as session:
        for problem, seconds in problems:
            started = time.monotonic()
            result = session.tune(problem, time_s=seconds)
            winner = result.winner
            assert winner is not None
            outcomes = " ".join(f"{name}={count}" for name, count in sorted(result.study.outcomes.items()))
            print(
                f"{problem.label}: {winner.record.median_us:.1f} us, {winner.record.speedup or 1.0:.2f} x plain, "
                f"{result.study.trials} of {result.study.space_size} configs ({outcomes}) in "
                f"{time.monotonic() - started:.1f} s, "
                f"GPU busy {100 * result.study.gpu_busy_s / result.study.wall_s:.0f} %\n"
                f"    {winner.record.verdict}",
                flush=True,
            )


if __name__ == "__main__":
    main()
