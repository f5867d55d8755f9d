"""Reads of the database that tables need and nothing else does: light ones, without reports and samples."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, select

from tuner.config import Config
from tuner.store.models import SpaceRow, StudyRow, TrialRow
from tuner.store.records import StoredWinner, launch_key
from tuner.store.store import Store
from tuner.trial import Outcome


def search_space(store: Store, study_id: int) -> tuple[str, str]:
    """The digest and the text of a study's search space."""

    def read(connection: Connection) -> tuple[str, str]:
        row = connection.execute(
            select(SpaceRow.digest, SpaceRow.text)
            .join(StudyRow, StudyRow.space_digest == SpaceRow.digest)
            .where(StudyRow.id == study_id)
        ).one()
        return row.digest, row.text

    return store._database.read(read)


def times(store: Store, winner: StoredWinner) -> dict[tuple[str, str], float]:
    """Microseconds of every timed trial of a winner's problem, device and stack, by variant hash and launch key.

    First looks of the search, and the finals' medians where a config came that far.
    """

    def read(connection: Connection) -> list[tuple[Config, str, float]]:
        rows = connection.execute(
            select(TrialRow.config, TrialRow.variant_id, TrialRow.value_us)
            .where(*_timed_beside(winner))
            .order_by(TrialRow.id)
        )
        return [(Config.from_json(row.config), row.variant_id, row.value_us) for row in rows]

    finals = _finals(winner)
    found = store._database.read(read)
    by_program = {(variant, launch_key(config)): finals.get(config.key, us) for config, variant, us in found}
    by_program[winner.variant_hash, launch_key(winner.config)] = winner.record.median_us
    return by_program


def fastest_of_templates(store: Store, winner: StoredWinner) -> list[StoredWinner]:
    """In the place of the winner, the fastest timed config of each other template, the fastest first.

    They are of the winner's problem, device and stack; their time is that of the finals where they came that far.
    """

    def read(connection: Connection) -> list[StoredWinner]:
        rows = connection.execute(
            select(TrialRow.id, TrialRow.template, TrialRow.config, TrialRow.variant_id, TrialRow.value_us)
            .where(*_timed_beside(winner), TrialRow.template != winner.config.template)
            .order_by(TrialRow.value_us, TrialRow.id)
        )
        best: dict[str, StoredWinner] = {}
        for row in rows:
            if row.template not in best:
                best[row.template] = _in_its_place(
                    winner, row.id, Config.from_json(row.config), row.variant_id, row.value_us
                )
        return sorted(best.values(), key=lambda one: (one.record.median_us, one.config.template))

    return store._database.read(read)


def _timed_beside(winner: StoredWinner) -> tuple[ColumnElement[bool], ...]:
    """What the timed trials of a winner's problem, device and stack fulfil."""
    return (
        TrialRow.problem_key == winner.problem.key,
        TrialRow.device_key == winner.device.key,
        TrialRow.stack_key == winner.stack.key,
        TrialRow.outcome == Outcome.TIMED.value,
        TrialRow.value_us.is_not(None),
    )


def _in_its_place(winner: StoredWinner, trial_id: int, config: Config, variant: str, us: float) -> StoredWinner:
    us = _finals(winner).get(config.key, us)
    slower = f"{us / winner.record.median_us - 1.0:.0%} slower than {winner.config.label}"
    record = replace(
        winner.record,
        trial_id=trial_id,
        verdict=f"the fastest that was tried of template {config.template}, {slower}",
        median_us=us,
        low_us=us,
        high_us=us,
        margin=None,
        interval=None,
        tie_set=(),
        speedup=winner.record.plain_us / us if winner.record.plain_us else None,
    )
    return replace(winner, config=config, variant_hash=variant, record=record)


def _finals(winner: StoredWinner) -> dict[str, float]:
    return {str(f["key"]): float(f["median_us"]) for f in winner.record.finalists if {"key", "median_us"} <= f.keys()}
