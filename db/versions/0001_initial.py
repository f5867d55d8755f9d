"""The first schema: devices, stacks, problems, variants, spaces, studies, trials, measurements, winners; three views.

Revision 0001, after nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)
MOMENT = sa.DateTime(timezone=True)

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

HISTORY = """
CREATE VIEW history AS
SELECT m.created_at, p.operator, p.label AS problem, p.shape, p.dtype, p.options, d.name AS device, s.label AS stack,
    CASE WHEN s.mode = 'estimated' THEN 'estimated' ELSE 'measured' END AS basis,
    t.template, t.label AS config, t.outcome, m.stage, m.protocol, m.median_us, m.low_us, m.high_us,
    m.sample_count, t.variant_id AS variant, t.id AS trial, m.id AS measurement
FROM tuner_measurement m
JOIN tuner_trial t ON t.id = m.trial_id
JOIN tuner_problem p ON p.key = t.problem_key
JOIN tuner_device d ON d.key = t.device_key
JOIN tuner_stack s ON s.key = t.stack_key
"""

FAILURES = """
CREATE VIEW failures AS
SELECT t.outcome, t.reason, p.operator, p.label AS problem, p.shape, p.dtype, p.options, d.name AS device,
    s.label AS stack, CASE WHEN s.mode = 'estimated' THEN 'estimated' ELSE 'measured' END AS basis,
    t.template, t.label AS config, t.variant_id AS variant, t.id AS trial, t.created_at
FROM tuner_trial t
JOIN tuner_problem p ON p.key = t.problem_key
JOIN tuner_device d ON d.key = t.device_key
JOIN tuner_stack s ON s.key = t.stack_key
WHERE t.outcome NOT IN ('timed', 'pruned')
"""


def key(name: str, *constraints: sa.schema.SchemaItem, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(16), *constraints, nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "tuner_device",
        key("key"),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("backend", sa.String(20), nullable=False),
        sa.Column("arch", sa.String(20), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_tuner_device"),
    )
    op.create_index("ix_tuner_device_name", "tuner_device", ["name"])

    op.create_table(
        "tuner_stack",
        key("key"),
        sa.Column("mode", sa.String(10), nullable=False),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("triton", sa.String(60), nullable=False),
        sa.Column("torch", sa.String(60), nullable=False),
        sa.Column("driver", sa.String(60), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_tuner_stack"),
    )

    op.create_table(
        "tuner_problem",
        key("key"),
        sa.Column("operator", sa.String(100), nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("shape", JSON, nullable=False),
        sa.Column("dtype", sa.String(10), nullable=False),
        sa.Column("options", JSON, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_tuner_problem"),
    )
    op.create_index("ix_tuner_problem_operator", "tuner_problem", ["operator"])

    op.create_table(
        "tuner_variant",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("operator", sa.String(100), nullable=False),
        sa.Column("template", sa.String(100), nullable=False),
        sa.Column("template_hash", sa.String(64), nullable=False),
        sa.Column("switches", JSON, nullable=False),
        sa.Column("exp2", sa.String(20), nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tuner_variant"),
    )
    op.create_index("ix_tuner_variant_template_hash", "tuner_variant", ["template_hash"])

    op.create_table(
        "tuner_space",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_tuner_space"),
    )

    op.create_table(
        "tuner_study",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("uid", sa.String(32), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        key("problem_key", sa.ForeignKey("tuner_problem.key", name="fk_tuner_study_problem_key")),
        key("device_key", sa.ForeignKey("tuner_device.key", name="fk_tuner_study_device_key")),
        key("stack_key", sa.ForeignKey("tuner_stack.key", name="fk_tuner_study_stack_key")),
        sa.Column(
            "space_digest",
            sa.String(64),
            sa.ForeignKey("tuner_space.digest", name="fk_tuner_study_space_digest"),
            nullable=False,
        ),
        sa.Column("mode", sa.String(10), nullable=False),
        sa.Column("sampler", sa.String(60), nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("max_trials", sa.Integer, nullable=True),
        sa.Column("max_seconds", sa.Double, nullable=True),
        sa.Column("protocol", sa.String(60), nullable=False),
        sa.Column("space_size", sa.BigInteger, nullable=True),
        sa.Column("optuna_name", sa.String(200), nullable=False),
        sa.Column("owner_host", sa.String(255), nullable=True),
        sa.Column("owner_pid", sa.Integer, nullable=True),
        sa.Column("owner_start", sa.String(40), nullable=True),
        sa.Column("heartbeat_at", MOMENT, nullable=True),
        sa.Column("wall_s", sa.Double, nullable=False),
        sa.Column("wall_s_before", sa.Double, nullable=False),
        sa.Column("gpu_busy_s", sa.Double, nullable=False),
        sa.Column("gpu_busy_s_before", sa.Double, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("finished_at", MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tuner_study"),
        sa.UniqueConstraint("uid", name="uq_tuner_study_uid"),
        sa.UniqueConstraint("name", name="uq_tuner_study_name"),
        sa.UniqueConstraint(
            "problem_key", "device_key", "stack_key", "space_digest", "mode", name="uq_tuner_study_identity"
        ),
    )

    op.create_table(
        "tuner_trial",
        sa.Column("id", sa.Integer, nullable=False),
        key("problem_key", sa.ForeignKey("tuner_problem.key", name="fk_tuner_trial_problem_key")),
        key("device_key", sa.ForeignKey("tuner_device.key", name="fk_tuner_trial_device_key")),
        key("stack_key", sa.ForeignKey("tuner_stack.key", name="fk_tuner_trial_stack_key")),
        key("config_key"),
        sa.Column(
            "variant_id",
            sa.String(64),
            sa.ForeignKey("tuner_variant.id", name="fk_tuner_trial_variant_id"),
            nullable=False,
        ),
        sa.Column("template", sa.String(100), nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("config", JSON, nullable=False),
        sa.Column("outcome", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("value_us", sa.Double, nullable=True),
        sa.Column("binary_hash", sa.String(64), nullable=True),
        key("same_as"),
        sa.Column("compile_report", JSON, nullable=True),
        sa.Column("check_report", JSON, nullable=True),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("seconds", JSON, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tuner_trial"),
        sa.UniqueConstraint(
            "problem_key", "device_key", "stack_key", "config_key", "variant_id", name="uq_tuner_trial_identity"
        ),
    )
    op.create_index("ix_tuner_trial_variant_id", "tuner_trial", ["variant_id"])

    op.create_table(
        "tuner_study_trial",
        sa.Column(
            "study_id",
            sa.Integer,
            sa.ForeignKey("tuner_study.id", name="fk_tuner_study_trial_study_id"),
            nullable=False,
        ),
        sa.Column(
            "trial_id",
            sa.Integer,
            sa.ForeignKey("tuner_trial.id", name="fk_tuner_study_trial_trial_id"),
            nullable=False,
        ),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("reused", sa.Boolean, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("study_id", "trial_id", name="pk_tuner_study_trial"),
        sa.UniqueConstraint("study_id", "ordinal", name="uq_tuner_study_trial_ordinal"),
    )
    op.create_index("ix_tuner_study_trial_trial_id", "tuner_study_trial", ["trial_id"])

    op.create_table(
        "tuner_measurement",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column(
            "trial_id",
            sa.Integer,
            sa.ForeignKey("tuner_trial.id", name="fk_tuner_measurement_trial_id"),
            nullable=False,
        ),
        sa.Column("digest", sa.String(32), nullable=False),
        sa.Column("stage", sa.String(20), nullable=False),
        sa.Column("protocol", sa.String(60), nullable=False),
        sa.Column("median_us", sa.Double, nullable=False),
        sa.Column("low_us", sa.Double, nullable=False),
        sa.Column("high_us", sa.Double, nullable=False),
        sa.Column("sample_count", sa.Integer, nullable=False),
        sa.Column("samples_us", JSON, nullable=False),
        sa.Column("rounds", JSON, nullable=False),
        sa.Column("processes", JSON, nullable=False),
        sa.Column("states", JSON, nullable=False),
        sa.Column("notes", JSON, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tuner_measurement"),
        sa.UniqueConstraint("trial_id", "digest", name="uq_tuner_measurement_content"),
    )
    op.create_index("ix_tuner_measurement_created_at", "tuner_measurement", ["created_at"])

    op.create_table(
        "tuner_winner",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("uid", sa.String(32), nullable=False),
        sa.Column(
            "study_id", sa.Integer, sa.ForeignKey("tuner_study.id", name="fk_tuner_winner_study_id"), nullable=False
        ),
        sa.Column(
            "trial_id", sa.Integer, sa.ForeignKey("tuner_trial.id", name="fk_tuner_winner_trial_id"), nullable=False
        ),
        key("problem_key", sa.ForeignKey("tuner_problem.key", name="fk_tuner_winner_problem_key")),
        key("device_key", sa.ForeignKey("tuner_device.key", name="fk_tuner_winner_device_key")),
        key("stack_key", sa.ForeignKey("tuner_stack.key", name="fk_tuner_winner_stack_key")),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("estimated", sa.Boolean, nullable=False),
        sa.Column("median_us", sa.Double, nullable=False),
        sa.Column("low_us", sa.Double, nullable=False),
        sa.Column("high_us", sa.Double, nullable=False),
        sa.Column("margin", sa.Double, nullable=True),
        sa.Column("margin_low", sa.Double, nullable=True),
        sa.Column("margin_high", sa.Double, nullable=True),
        key("plain_key"),
        sa.Column("plain_us", sa.Double, nullable=True),
        sa.Column("speedup", sa.Double, nullable=True),
        sa.Column("tie_set", JSON, nullable=False),
        sa.Column("finalists", JSON, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tuner_winner"),
        sa.UniqueConstraint("uid", name="uq_tuner_winner_uid"),
    )
    op.create_index("ix_tuner_winner_study_id", "tuner_winner", ["study_id"])
    op.create_index("ix_tuner_winner_trial_id", "tuner_winner", ["trial_id"])
    op.create_index("ix_tuner_winner_best", "tuner_winner", ["problem_key", "device_key", "estimated", "created_at"])

    for view in (WINNERS, HISTORY, FAILURES):
        op.execute(view)


def downgrade() -> None:
    for view in ("winners", "history", "failures"):
        op.execute(f"DROP VIEW {view}")
    for table in (
        "tuner_winner",
        "tuner_measurement",
        "tuner_study_trial",
        "tuner_trial",
        "tuner_study",
        "tuner_space",
        "tuner_variant",
        "tuner_problem",
        "tuner_stack",
        "tuner_device",
    ):
        op.drop_table(table)
