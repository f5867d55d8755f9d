"""Search: proposes configs and learns from what became of them. Importing this package does not load Optuna."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.config import Config
from tuner.search.base import Known, Proposal, Proposer, SearchSpace, Source
from tuner.search.names import DEFAULT_SAMPLER, SAMPLERS, check_sampler

__all__ = [
    "DEFAULT_SAMPLER",
    "SAMPLERS",
    "Known",
    "Proposal",
    "Proposer",
    "SearchSpace",
    "Source",
    "check_sampler",
    "make_proposer",
]


def make_proposer(
    bound: SearchSpace,
    *,
    sampler: str = DEFAULT_SAMPLER,
    seed: int = 0,
    storage: str | None = None,
    study_name: str = "study",
    known: Known | None = None,
    similar: Sequence[Config] = (),
    owner: str = "",
    enumerate_below: int = 64,
) -> Proposer:
    """A proposer over ``bound``, kept in Optuna's storage at the SQLAlchemy URL ``storage`` (in memory when None).

    The plain config of each template comes first, then what is ``similar`` (winners of problems like this one; configs
    that are not in the space are left out). Then a space of at most ``enumerate_below`` valid configs (and any
    space with the sampler ``exhaustive``) is walked in a shuffled order of ``seed``; otherwise ``sampler`` proposes.
    An existing study of that name is continued. ``known`` are the results that hold: never proposed, learnt from; what
    the study tried and ``known`` lacks (the source has changed since) is proposed again. None: the study decides.
    ``owner`` (``tuner.search.owner.current_owner()`` when empty) marks the trials in flight; those of a dead owner are
    given up when the study is opened again, and those of others are not waited for. Raises ``UsageError`` for an
    unknown sampler, ``MissingError`` where its library is not installed, ``StoreError`` where the storage cannot be
    used.
    """
    check_sampler(sampler)
    from tuner.search.optuna_proposer import OptunaProposer
    from tuner.search.owner import current_owner

    return OptunaProposer(
        bound,
        sampler=sampler,
        seed=seed,
        storage=storage,
        study_name=study_name,
        known=known,
        similar=similar,
        owner=owner or current_owner(),
        enumerate_below=enumerate_below,
    )
