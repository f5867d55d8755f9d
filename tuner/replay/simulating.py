"""One search over a recorded space: each proposal is answered from the recording, and nothing is run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from tuner.config import Config
from tuner.replay.recording import Recording
from tuner.search import make_proposer


@dataclass(frozen=True)
class Step:
    """One evaluation. ``best_us``: microseconds of the fastest so far (infinite before the first that has a time);
    ``cost_s``: recorded seconds of tuning so far; ``suggesting_s``: CPU seconds that asking for it and learning from it
    took."""

    best_us: float
    cost_s: float
    suggesting_s: float


def simulate(
    recording: Recording, sampler: str, budget: int, seed: int, similar: Sequence[Config] = ()
) -> tuple[Step, ...]:
    """What a search with ``sampler`` finds in at most ``budget`` evaluations; fewer where the space is used up.

    ``similar``: winners of problems like this one, which are tried after the plain configs. No config is evaluated
    twice, and a failure counts as an evaluation. Raises what ``make_proposer`` does, and ``KeyError`` for a proposal
    that is not in the recording.
    """
    steps: list[Step] = []
    best_us, cost_s = math.inf, 0.0
    proposer = make_proposer(recording, sampler=sampler, seed=seed, similar=similar, enumerate_below=0)
    with closing(proposer):
        while len(steps) < budget:
            started = time.process_time()
            proposal = proposer.ask()
            if proposal is None:
                break
            row = recording.row(proposal.config)
            proposer.tell(proposal, row.outcome, row.time_us)
            suggesting_s = time.process_time() - started
            best_us, cost_s = min(best_us, row.time_us or math.inf), cost_s + row.cost_s
            steps.append(Step(best_us, cost_s, suggesting_s))
    return tuple(steps)
