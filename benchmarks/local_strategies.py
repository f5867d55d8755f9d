"""Search strategies that autotuners are known for, over the listed configs of a recorded space, as baselines.

Each is a generator of rows: it yields the number of a row and is sent its time (infinite for a failure). A row may be
asked for again; whoever drives the generator counts distinct ones only. Neighbours of a config differ from it in one
parameter. Settings are those that are usual in the literature, not tuned on any space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

import numpy as np

from tuner.replay.recording import Recording

Strategy = Generator[int, float, None]


class Rows:
    """A recording's configs as indices of values, and which of them are neighbours."""

    def __init__(self, recording: Recording) -> None:
        if len(recording.templates) != 1:
            raise ValueError("the baselines take recordings with one template")
        domain = recording.domain(recording.templates[0])
        self.sizes = [len(values) for values in domain.values()]
        places = {name: {v: i for i, v in enumerate(values)} for name, values in domain.items()}
        self.points = [tuple(places[n][row.config.values[n]] for n in domain) for row in recording.rows]
        self.place = {point: at for at, point in enumerate(self.points)}
        self.times = [math.inf if row.time_us is None else row.time_us for row in recording.rows]

    def __len__(self) -> int:
        return len(self.points)

    def neighbours(self, row: int) -> list[int]:
        """The rows that differ in one parameter."""
        point = self.points[row]
        changed = (
            (*point[:at], value, *point[at + 1 :])
            for at, size in enumerate(self.sizes)
            for value in range(size)
            if value != point[at]
        )
        return [self.place[other] for other in changed if other in self.place]


def random_sample(rows: Rows, rng: np.random.Generator) -> Strategy:
    """Every row in a random order."""
    for row in rng.permutation(len(rows)):
        yield int(row)


def annealing(rows: Rows, rng: np.random.Generator) -> Strategy:
    """Simulated annealing (Kirkpatrick et al. 1983) on relative times: cooled by 0.5 % a step, anew when cold."""
    while True:
        here = int(rng.integers(len(rows)))
        time, heat = (yield here), 0.5
        while heat > 0.001:
            near = rows.neighbours(here)
            if not near:
                break
            there = near[int(rng.integers(len(near)))]
            its = yield there
            worse = its / time - 1.0 if math.isfinite(time) else -1.0
            if worse <= 0.0 or (math.isfinite(its) and rng.random() < math.exp(-worse / heat)):
                here, time = there, its
            heat *= 0.995


def genetic(rows: Rows, rng: np.random.Generator, size: int = 20, mutation: float = 0.1) -> Strategy:
    """A genetic algorithm: 20 at a time, parents drawn by rank, uniform crossover, each gene mutated with 10 %."""
    people = [int(row) for row in rng.choice(len(rows), min(size, len(rows)), replace=False)]
    while True:
        scored = []
        for row in people:
            scored.append(((yield row), row))
        scored.sort()
        weights = np.arange(len(scored), 0, -1.0)
        children: list[int] = [scored[0][1]]
        while len(children) < len(people):
            one, two = (scored[int(i)][1] for i in rng.choice(len(scored), 2, p=weights / weights.sum()))
            child = tuple(
                int(rng.integers(size)) if rng.random() < mutation else (a if rng.random() < 0.5 else b)
                for a, b, size in zip(rows.points[one], rows.points[two], rows.sizes, strict=True)
            )
            if child in rows.place:
                children.append(rows.place[child])
        people = children


def local_search(rows: Rows, rng: np.random.Generator, kick: int = 2) -> Strategy:
    """Greedy iterated local search: the first better neighbour until there is none, then ``kick`` random steps."""
    best = int(rng.integers(len(rows)))
    best_time = yield best
    here, time = best, best_time
    while True:
        improved = True
        while improved:
            improved = False
            for there in rng.permutation(np.array(rows.neighbours(here), dtype=np.int64)):
                its = yield int(there)
                if its < time:
                    here, time, improved = int(there), its, True
                    break
        if time < best_time:
            best, best_time = here, time
        here = best
        for _ in range(kick):
            near = rows.neighbours(here)
            here = near[int(rng.integers(len(near)))] if near else int(rng.integers(len(rows)))
        time = yield here


STRATEGIES: dict[str, Callable[[Rows, np.random.Generator], Strategy]] = {
    "random": random_sample,
    "annealing": annealing,
    "genetic": genetic,
    "local search": local_search,
}
