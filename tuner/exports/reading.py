"""Reads of the database that tables need and nothing else does: light ones, without reports and samples."""

from __future__ import annotations

from sqlalchemy import Connection, select

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
            .where(
                TrialRow.problem_key == winner.problem.key,
                TrialRow.device_key == winner.device.key,
                TrialRow.stack_key == winner.stack.key,
                TrialRow.outcome == Outcome.TIMED.value,
                TrialRow.value_us.is_not(None),
            )
            .order_by(TrialRow.id)
        )
        return [(Config.from_json(row.config), row.variant_id, row.value_us) for row in rows]

    finals = {str(f["key"]): float(f["median_us"]) for f in winner.record.finalists if {"key", "median_us"} <= f.keys()}
    found = store._database.read(read)
    by_program = {(variant, launch_key(config)): finals.get(config.key, us) for config, variant, us in found}
    by_program[winner.variant_hash, launch_key(winner.config)] = winner.record.median_us
    return by_program
