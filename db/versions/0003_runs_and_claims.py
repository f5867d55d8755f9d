"""Several processes run one study: runs with a lease, claims of configs. Variants say where they came from.

Revision 0003, after 0002. Who runs a study moves from the study's row to a row of its own.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)

OWNER_TO_RUN = """
INSERT INTO tuner_run (study_id, host, pid, start, started_at, heartbeat_at, wall_s, gpu_busy_s)
SELECT id, owner_host, owner_pid, coalesce(owner_start, ''), updated_at, coalesce(heartbeat_at, updated_at),
    wall_s - wall_s_before, gpu_busy_s - gpu_busy_s_before
FROM tuner_study
WHERE owner_pid IS NOT NULL AND owner_host IS NOT NULL
"""

RUN_TO_OWNER = """
UPDATE tuner_study SET
    owner_host = (SELECT host FROM tuner_run WHERE id = {newest}),
    owner_pid = (SELECT pid FROM tuner_run WHERE id = {newest}),
    owner_start = (SELECT start FROM tuner_run WHERE id = {newest}),
    heartbeat_at = (SELECT heartbeat_at FROM tuner_run WHERE id = {newest}),
    wall_s_before = wall_s - coalesce((SELECT wall_s FROM tuner_run WHERE id = {newest}), 0),
    gpu_busy_s_before = gpu_busy_s - coalesce((SELECT gpu_busy_s FROM tuner_run WHERE id = {newest}), 0)
""".format(newest="(SELECT max(r.id) FROM tuner_run r WHERE r.study_id = tuner_study.id AND r.lost_at IS NULL)")

WINNERS = """
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
JOIN tuner_stack s ON s.key = w.stack_key
WHERE t.outcome = 'timed' AND NOT EXISTS (
    SELECT 1 FROM tuner_winner n JOIN tuner_trial nt ON nt.id = n.trial_id
    WHERE nt.outcome = 'timed' AND n.problem_key = w.problem_key AND n.device_key = w.device_key
        AND n.estimated = w.estimated
        AND (n.created_at > w.created_at OR (n.created_at = w.created_at AND n.id > w.id))
)
"""

KEPT = (
    "id, uid, name, problem_key, device_key, stack_key, space_digest, mode, sampler, seed, state, max_trials, "
    "max_seconds, protocol, space_size, optuna_name, wall_s, gpu_busy_s, created_at, updated_at, finished_at"
)
OWNER = ("owner_host", "owner_pid", "owner_start", "heartbeat_at", "wall_s_before", "gpu_busy_s_before")


def upgrade() -> None:
    op.create_table(
        "tuner_run",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column(
            "study_id", sa.Integer, sa.ForeignKey("tuner_study.id", name="fk_tuner_run_study_id"), nullable=False
        ),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("start", sa.String(40), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("heartbeat_at", MOMENT, nullable=False),
        sa.Column("lost_at", MOMENT, nullable=True),
        sa.Column("wall_s", sa.Double, nullable=False),
        sa.Column("gpu_busy_s", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tuner_run"),
    )
    op.create_index("ix_tuner_run_study_id_lost_at", "tuner_run", ["study_id", "lost_at"])
    op.create_table(
        "tuner_claim",
        sa.Column("problem_key", sa.String(16), nullable=False),
        sa.Column("device_key", sa.String(16), nullable=False),
        sa.Column("stack_key", sa.String(16), nullable=False),
        sa.Column("config_key", sa.String(16), nullable=False),
        sa.Column("variant_id", sa.String(64), nullable=False),
        sa.Column("run_id", sa.Integer, sa.ForeignKey("tuner_run.id", name="fk_tuner_claim_run_id"), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint(
            "problem_key", "device_key", "stack_key", "config_key", "variant_id", name="pk_tuner_claim"
        ),
    )
    op.create_index("ix_tuner_claim_run_id", "tuner_claim", ["run_id"])
    op.execute(OWNER_TO_RUN)
    # SQLite makes the table anew, and the view must not look on.
    op.execute("DROP VIEW winners")
    if op.get_bind().dialect.name == "sqlite":
        _make_study_anew()
    else:
        for name in OWNER:
            op.drop_column("tuner_study", name)
    op.execute(WINNERS)
    op.add_column("tuner_variant", sa.Column("origin", sa.String(255), nullable=True))


def _make_study_anew() -> None:
    """SQLite drops columns from 3.35 on; older ones are still about."""
    op.create_table(
        "tuner_study_new",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("uid", sa.String(32), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("problem_key", sa.String(16), nullable=False),
        sa.Column("device_key", sa.String(16), nullable=False),
        sa.Column("stack_key", sa.String(16), nullable=False),
        sa.Column("space_digest", sa.String(64), nullable=False),
        sa.Column("mode", sa.String(10), nullable=False),
        sa.Column("sampler", sa.String(60), nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("max_trials", sa.Integer, nullable=True),
        sa.Column("max_seconds", sa.Double, nullable=True),
        sa.Column("protocol", sa.String(60), nullable=False),
        sa.Column("space_size", sa.BigInteger, nullable=True),
        sa.Column("optuna_name", sa.String(200), nullable=False),
        sa.Column("wall_s", sa.Double, nullable=False),
        sa.Column("gpu_busy_s", sa.Double, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("finished_at", MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tuner_study"),
        *(
            sa.ForeignKeyConstraint([column], [f"{table}.{key}"], name=f"fk_tuner_study_{column}")
            for column, table, key in (
                ("problem_key", "tuner_problem", "key"),
                ("device_key", "tuner_device", "key"),
                ("stack_key", "tuner_stack", "key"),
                ("space_digest", "tuner_space", "digest"),
            )
        ),
        sa.UniqueConstraint("uid", name="uq_tuner_study_uid"),
        sa.UniqueConstraint("name", name="uq_tuner_study_name"),
        sa.UniqueConstraint(
            "problem_key", "device_key", "stack_key", "space_digest", "mode", name="uq_tuner_study_identity"
        ),
    )
    op.execute(f"INSERT INTO tuner_study_new SELECT {KEPT} FROM tuner_study")
    op.drop_table("tuner_study")
    op.rename_table("tuner_study_new", "tuner_study")


def downgrade() -> None:
    op.execute("DROP VIEW winners")
    with op.batch_alter_table("tuner_variant") as table:
        table.drop_column("origin")
    with op.batch_alter_table("tuner_study") as table:
        table.add_column(sa.Column("owner_host", sa.String(255), nullable=True))
        table.add_column(sa.Column("owner_pid", sa.Integer, nullable=True))
        table.add_column(sa.Column("owner_start", sa.String(40), nullable=True))
        table.add_column(sa.Column("heartbeat_at", MOMENT, nullable=True))
        for name in ("wall_s_before", "gpu_busy_s_before"):
            table.add_column(sa.Column(name, sa.Double, nullable=False, server_default="0"))
    op.execute(RUN_TO_OWNER)
    with op.batch_alter_table("tuner_study") as table:
        for name in ("wall_s_before", "gpu_busy_s_before"):
            table.alter_column(name, server_default=None)
    op.execute(WINNERS)
    op.drop_table("tuner_claim")
    op.drop_table("tuner_run")
