"""Configs that won elsewhere: where a search does well to begin."""

from __future__ import annotations

import math

from tuner.config import Config
from tuner.problem import Problem
from tuner.space import BoundSpace
from tuner.store.store import Store
from tuner.trial import Outcome

MOST = 3
"""So many of them are tried before the sampler is asked."""

FARTHEST = 4.0
"""How far sizes may be: the sum of all their ratios as powers of two, of strides and sizes by default too, so that rows
four times as long are just near enough. Farther winners were measured to cost a search more configs than they saved
(``benchmarks.transfer``)."""


def similar_winners(store: Store, bound: BoundSpace) -> list[Config]:
    """The stored winners of the operator's most similar problems, as configs of ``bound``, the most similar first.

    What a problem differs in counts in this order: options, dtype, and the sizes' ratios; then what was measured before
    what was estimated, and this device before others. Values that ``bound`` does not allow give way to the valid config
    nearest to them. Left out are plain configs, which are tried anyway, and problems whose sizes are farther than
    ``FARTHEST``; at most ``MOST``.
    """
    problem, device = bound.problem, bound.device
    known = store.history.catalogue()
    ranked = []
    for estimated in (False, True):
        for winner in store.history.winners(estimated=estimated):
            theirs = known.problems[winner.problem_key]
            if theirs.operator == problem.operator and winner.outcome is Outcome.TIMED:
                options, dtype, sizes = _unlike(problem, theirs)
                if sizes <= FARTHEST:
                    unlike = (options, dtype, sizes, estimated, winner.device_key != device.key, -winner.id)
                    ranked.append((unlike, winner.config))
    plain = {config.key for config in bound.plain()}
    found: dict[str, Config] = {}
    for _, config in sorted(ranked, key=lambda pair: pair[0]):
        if len(found) == MOST:
            break
        ours = bound.nearest(config)
        if ours is not None and ours.key not in plain:
            found.setdefault(ours.key, ours)
    return list(found.values())


def _unlike(one: Problem, other: Problem) -> tuple[int, bool, float]:
    """How many options differ, whether the dtype does, and the sum of the sizes' ratios as powers of two.

    A size of 0, or that one of them leaves out, says that something is not there, so it counts as an option.
    """
    options = sum(one.settings.get(name) != other.settings.get(name) for name in one.settings.keys() | other.settings)
    pairs = [(size, other.sizes[name]) for name, size in one.sizes.items() if name in other.sizes]
    options += sum((ours == 0) != (theirs == 0) for ours, theirs in pairs) + len(one.sizes.keys() ^ other.sizes)
    sizes = sum(abs(math.log2(ours / theirs)) for ours, theirs in pairs if ours and theirs)
    return options, one.dtype != other.dtype, sizes
