"""Makes the standalone file of a config or of a stored winner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tuner.config import Config
from tuner.operators import get
from tuner.rendering import render
from tuner.shipped import version
from tuner.space import BoundSpace
from tuner.standalone import StandaloneHeader, standalone
from tuner.store.records import StoredWinner
from tuner.store.store import Store
from tuner.template import read_template

_TOLERANCE = "per element, from the reference's error bound"


def config_file(bound: BoundSpace, config: Config, triton_version: str | None) -> str:
    """The file of ``config``, rendered from its template."""
    profile = ", ".join(f"{field} {value}" for field, value in bound.precision(config).as_json().items())
    header = StandaloneHeader.of(
        bound.problem,
        config,
        bound.launch_arguments(config),
        space_digest=bound.digest,
        tolerance=f"{_TOLERANCE} for {profile}",
        self_check=get(bound.problem.operator).self_check(bound.problem),
        generator=_generator(),
    )
    return standalone(render(bound.template(config), dict(config.switches), triton_version), header)


def winner_file(store: Store, winner: StoredWinner, triton_version: str | None) -> str:
    """The file of a stored winner, from the source that was stored with it: no search space is needed.

    That source has its switches fixed already; what is left to render is how it spells the base-2 exponential.
    Raises ``ProblemError`` where the stored problem is none of its operator.
    """
    stored, study = store.variant(winner.variant_hash), store.study(winner.study_id)
    # What is stored may be anybody's: the operator says whether it is a problem at all.
    problem = get(winner.problem.operator).problem(winner.problem.sizes, winner.problem.dtype, winner.problem.settings)
    trial = store.trial(winner.record.trial_id)
    template = read_template(stored.operator, stored.template, Path(f"{stored.template}.py"), stored.source)
    variant = replace(
        render(template, {}, triton_version), template_hash=stored.template_hash, switches=stored.switches
    )
    values = winner.config.values
    # A winner has passed a check, so there is a report.
    assert trial.check_report is not None
    worst = f"; the largest error when it was checked was {trial.check_report.worst_ratio:.2f} of it"
    header = StandaloneHeader.of(
        winner.problem,
        winner.config,
        {name: values[name] for name in template.launch_parameters if name in values},
        space_digest=study.summary.space_digest,
        device=winner.device,
        stack=winner.stack,
        tolerance=_TOLERANCE + worst,
        self_check=get(winner.problem.operator).self_check(problem),
        generator=_generator(),
    )
    return standalone(variant, header)


def _generator() -> str:
    return f"triton-variant-tuner {version()}"
