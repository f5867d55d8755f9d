"""Indexes for comparing points and for queries: trials by place and by time, measurements by stage.

Revision 0002, after 0001. No row changes.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INDEXES = (
    ("ix_tuner_trial_place", "tuner_trial", ["device_key", "stack_key", "outcome"]),
    ("ix_tuner_trial_created_at", "tuner_trial", ["created_at"]),
    ("ix_tuner_measurement_stage", "tuner_measurement", ["stage", "trial_id"]),
)


def upgrade() -> None:
    for name, table, columns in INDEXES:
        op.create_index(name, table, columns)


def downgrade() -> None:
    for name, table, _ in reversed(INDEXES):
        op.drop_index(name, table_name=table)
