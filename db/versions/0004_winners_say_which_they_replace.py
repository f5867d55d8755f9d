"""Winners say which earlier ones of their study they were chosen in the knowledge of.

Revision 0004, after 0003. The view `winners` has what counts by that, not what is newest: in a joined database the
newest may have been chosen by someone who knew little.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)

COLUMNS = """
CREATE VIEW winners AS
SELECT p.operator, p.label AS problem, p.shape, p.dtype, p.options, d.name AS device, s.label AS stack,
    CASE WHEN w.estimated THEN 'estimated' ELSE 'measured' END AS basis,
    t.template, t.label AS config, w.median_us, w.low_us, w.high_us, w.kind, w.verdict, w.margin,
    w.plain_us, w.speedup, st.name AS study, t.variant_id AS variant, w.created_at
FROM tuner_winner w
JOIN tuner_trial t ON t.id = w.trial_id
JOIN tuner_study st ON st.id = w.study_id
JOIN tuner_problem p ON p.key = w.problem_key
JOIN tuner_device d ON d.key = w.device_key
JOIN tuner_stack s ON s.key = w.stack_key"""

COUNTING = """
JOIN (
    SELECT v.id, row_number() OVER (
        PARTITION BY v.problem_key, v.device_key, v.estimated
        ORDER BY v.stack_moment DESC, v.stack_key, v.median_us, v.created_at, v.uid
    ) AS place
    FROM (
        SELECT a.*, max(a.created_at) OVER (
            PARTITION BY a.problem_key, a.device_key, a.estimated, a.stack_key
        ) AS stack_moment
        FROM tuner_winner a JOIN tuner_trial b ON b.id = a.trial_id
        WHERE b.outcome = 'timed'
    ) v
    WHERE NOT EXISTS (
        SELECT 1 FROM tuner_winner n JOIN tuner_trial m ON m.id = n.trial_id
        WHERE m.outcome = 'timed' AND n.study_id = v.study_id
            AND CAST(n.replaces AS TEXT) LIKE '%' || v.uid || '%'
    )
) c ON c.id = w.id AND c.place = 1
"""

NEWEST = """
WHERE t.outcome = 'timed' AND NOT EXISTS (
    SELECT 1 FROM tuner_winner n JOIN tuner_trial nt ON nt.id = n.trial_id
    WHERE nt.outcome = 'timed' AND n.problem_key = w.problem_key AND n.device_key = w.device_key
        AND n.estimated = w.estimated
        AND (n.created_at > w.created_at OR (n.created_at = w.created_at AND n.id > w.id))
)
"""


def upgrade() -> None:
    op.execute("DROP VIEW winners")
    # It may be NULL, so that SQLite need not make the table anew.
    op.add_column("tuner_winner", sa.Column("replaces", JSON, nullable=True))
    _fill()
    op.execute(COLUMNS + COUNTING)


def _fill() -> None:
    """Until now the newest of a study counted: each replaces all that were there before it."""
    winner = sa.table(
        "tuner_winner", *(sa.column(n) for n in ("id", "uid", "study_id", "created_at")), sa.column("replaces", JSON)
    )
    connection = op.get_bind()
    before: dict[int, list[str]] = {}
    ordered = sa.select(winner.c.id, winner.c.uid, winner.c.study_id).order_by(winner.c.created_at, winner.c.id)
    for row in connection.execute(ordered).all():
        earlier = before.setdefault(row.study_id, [])
        connection.execute(sa.update(winner).where(winner.c.id == row.id).values(replaces=list(earlier)))
        earlier.append(row.uid)


def downgrade() -> None:
    op.execute("DROP VIEW winners")
    with op.batch_alter_table("tuner_winner") as table:
        table.drop_column("replaces")
    op.execute(COLUMNS + NEWEST)
