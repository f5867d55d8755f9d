"""The tables. The same schema, as history, is in the migrations; a test holds the two together.

Every table starts with ``tuner_``, because Optuna's own tables live in the same database. Devices, stacks, problems,
variants and spaces are keyed by their content, so databases of several machines can be joined without renaming.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
)
from sqlalchemy import UniqueConstraint as Unique
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

VERSION_TABLE = "tuner_alembic_version"
"""Where Alembic notes our revision. Optuna's is in ``alembic_version``."""

Json = JSON(none_as_null=True)
Key = String(16)
Hash = String(64)


class UtcDateTime(TypeDecorator[datetime]):
    """An aware moment in UTC, in and out, on databases with and without time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC; a moment without a zone is refused."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a stored moment must have a time zone, but got {value!r}")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """SQLite gives moments without a zone; they are UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Constraint names are fixed, so that a later migration can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class DeviceRow(Base):
    """A device as tuned for; ``data`` is the whole ``Device``."""

    __tablename__ = "tuner_device"
    key: Mapped[str] = mapped_column(Key, primary_key=True, doc="hash of name and limits")
    name: Mapped[str] = mapped_column(String(200), index=True)
    backend: Mapped[str] = mapped_column(String(20), doc="cuda or hip")
    arch: Mapped[str] = mapped_column(String(20), doc="90 for sm_90, gfx942 for an MI300X")
    data: Mapped[dict[str, Any]] = mapped_column(Json, doc="every field of the device")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class StackRow(Base):
    """A software stack; ``data`` is the whole ``Stack``."""

    __tablename__ = "tuner_stack"
    key: Mapped[str] = mapped_column(Key, primary_key=True, doc="hash of everything in it")
    mode: Mapped[str] = mapped_column(String(10), doc="measured or estimated")
    label: Mapped[str] = mapped_column(String(200), doc="for people")
    triton: Mapped[str] = mapped_column(String(60))
    torch: Mapped[str] = mapped_column(String(60))
    driver: Mapped[str] = mapped_column(String(60))
    data: Mapped[dict[str, Any]] = mapped_column(Json, doc="every field of the stack")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ProblemRow(Base):
    """A problem. ``shape`` and ``options`` keep the operator's order."""

    __tablename__ = "tuner_problem"
    key: Mapped[str] = mapped_column(Key, primary_key=True, doc="hash of operator, shape, dtype and options")
    operator: Mapped[str] = mapped_column(String(100), index=True)
    label: Mapped[str] = mapped_column(Text, doc="for people")
    shape: Mapped[dict[str, Any]] = mapped_column(Json, doc="sizes by name, in the operator's order")
    dtype: Mapped[str] = mapped_column(String(10))
    options: Mapped[dict[str, Any]] = mapped_column(Json, doc="flags and scalars by name")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class VariantRow(Base):
    """A rendered source under the SHA-256 of its text."""

    __tablename__ = "tuner_variant"
    id: Mapped[str] = mapped_column(Hash, primary_key=True, doc="SHA-256 of the source")
    operator: Mapped[str] = mapped_column(String(100))
    template: Mapped[str] = mapped_column(String(100))
    template_hash: Mapped[str] = mapped_column(Hash, index=True, doc="SHA-256 of the template's text")
    switches: Mapped[dict[str, Any]] = mapped_column(Json, doc="those that were fixed, by name")
    exp2: Mapped[str] = mapped_column(
        String(20), doc="how the base-2 exponential is spelt: tl.exp2, tl.math.exp2 or shim"
    )
    source: Mapped[str] = mapped_column(Text, doc="stands alone: torch and Triton only")
    origin: Mapped[str | None] = mapped_column(
        String(255), doc="the database that it was merged from; NULL where it was rendered for this one"
    )
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class SpaceRow(Base):
    """A search space's text under the digest of its content."""

    __tablename__ = "tuner_space"
    digest: Mapped[str] = mapped_column(
        Hash, primary_key=True, doc="of the YAML's content and the applicable templates"
    )
    name: Mapped[str] = mapped_column(String(100))
    text: Mapped[str] = mapped_column(Text, doc="the YAML as it was")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class StudyRow(Base):
    """A study, its budget and how far it is. Who runs it is in ``tuner_run``."""

    __tablename__ = "tuner_study"
    __table_args__ = (
        Unique("problem_key", "device_key", "stack_key", "space_digest", "mode", name="uq_tuner_study_identity"),
    )
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True, doc="unique over databases")
    name: Mapped[str] = mapped_column(String(200), unique=True)
    problem_key: Mapped[str] = mapped_column(ForeignKey("tuner_problem.key"))
    device_key: Mapped[str] = mapped_column(ForeignKey("tuner_device.key"))
    stack_key: Mapped[str] = mapped_column(ForeignKey("tuner_stack.key"))
    space_digest: Mapped[str] = mapped_column(ForeignKey("tuner_space.digest"))
    mode: Mapped[str] = mapped_column(String(10), doc="measured or estimated")
    sampler: Mapped[str] = mapped_column(String(60))
    seed: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(20), doc="running, interrupted or finished")
    max_trials: Mapped[int | None] = mapped_column(Integer, doc="the budget of the last run")
    max_seconds: Mapped[float | None] = mapped_column(Double, doc="the budget of the last run")
    protocol: Mapped[str] = mapped_column(String(60), doc="how times were taken")
    space_size: Mapped[int | None] = mapped_column(BigInteger, doc="valid configs")
    optuna_name: Mapped[str] = mapped_column(String(200), doc="the study in Optuna's tables")
    wall_s: Mapped[float] = mapped_column(Double, doc="seconds, over all runs")
    gpu_busy_s: Mapped[float] = mapped_column(Double, doc="seconds, over all runs")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class RunRow(Base):
    """A process that runs a study, or was killed while it did. Several may run one study at a time."""

    __tablename__ = "tuner_run"
    __table_args__ = (Index(None, "study_id", "lost_at"),)
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_study.id"))
    host: Mapped[str] = mapped_column(String(255), doc="the process: its host, ...")
    pid: Mapped[int] = mapped_column(Integer, doc="... its id there ...")
    start: Mapped[str] = mapped_column(String(40), doc="... and when it was started, as the kernel says")
    started_at: Mapped[datetime] = mapped_column(UtcDateTime)
    heartbeat_at: Mapped[datetime] = mapped_column(UtcDateTime, doc="its last sign of life")
    lost_at: Mapped[datetime | None] = mapped_column(UtcDateTime, doc="when others took it for dead; NULL before that")
    wall_s: Mapped[float] = mapped_column(Double, doc="seconds so far")
    gpu_busy_s: Mapped[float] = mapped_column(Double, doc="seconds so far")


class ClaimRow(Base):
    """A config that a run is working on, so that no other does. It goes with the trial's result, or with the run."""

    __tablename__ = "tuner_claim"
    problem_key: Mapped[str] = mapped_column(Key, primary_key=True)
    device_key: Mapped[str] = mapped_column(Key, primary_key=True)
    stack_key: Mapped[str] = mapped_column(Key, primary_key=True)
    config_key: Mapped[str] = mapped_column(Key, primary_key=True)
    variant_id: Mapped[str] = mapped_column(Hash, primary_key=True, doc="SHA-256 of its source")
    run_id: Mapped[int] = mapped_column(ForeignKey("tuner_run.id"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class TrialRow(Base):
    """One config's way through the funnel. Its key is what the result depends on, and no study is part of that."""

    __tablename__ = "tuner_trial"
    __table_args__ = (
        Unique("problem_key", "device_key", "stack_key", "config_key", "variant_id", name="uq_tuner_trial_identity"),
        Index("ix_tuner_trial_place", "device_key", "stack_key", "outcome"),
    )
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    problem_key: Mapped[str] = mapped_column(ForeignKey("tuner_problem.key"))
    device_key: Mapped[str] = mapped_column(ForeignKey("tuner_device.key"))
    stack_key: Mapped[str] = mapped_column(ForeignKey("tuner_stack.key"))
    config_key: Mapped[str] = mapped_column(Key, doc="hash of template, switches and launch parameters")
    variant_id: Mapped[str] = mapped_column(ForeignKey("tuner_variant.id"), index=True)
    template: Mapped[str] = mapped_column(String(100))
    label: Mapped[str] = mapped_column(Text, doc="the config, for people")
    config: Mapped[dict[str, Any]] = mapped_column(Json, doc="template, switches, launch parameters")
    outcome: Mapped[str] = mapped_column(
        String(20), doc="how it ended: timed, pruned, wrong, out_of_resources, compile_error, crashed or timed_out"
    )
    reason: Mapped[str] = mapped_column(Text, doc="why, where it was not timed")
    value_us: Mapped[float | None] = mapped_column(
        Double, doc="microseconds that the search was told; only where timed"
    )
    binary_hash: Mapped[str | None] = mapped_column(Hash, doc="of machine code, grid and arguments")
    same_as: Mapped[str] = mapped_column(
        Key, doc="config key of the twin with the same binary that was measured in its place"
    )
    compile_report: Mapped[dict[str, Any] | None] = mapped_column(Json, doc="registers, shared memory, spills")
    check_report: Mapped[dict[str, Any] | None] = mapped_column(
        Json, doc="each input family with its largest error over the bound"
    )
    seed: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[dict[str, Any]] = mapped_column(Json, doc="what each stage took")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class StudyTrialRow(Base):
    """Which study used which trial, in which order, and whether it was known before."""

    __tablename__ = "tuner_study_trial"
    __table_args__ = (Unique("study_id", "ordinal", name="uq_tuner_study_trial_ordinal"),)
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_study.id"), primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("tuner_trial.id"), primary_key=True, index=True)
    ordinal: Mapped[int] = mapped_column(Integer, doc="its place in the study")
    reused: Mapped[bool] = mapped_column(Boolean, doc="known before the study asked for it")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class MeasurementRow(Base):
    """The samples of one timed config under one protocol. ``digest`` is of the content, which is kept once."""

    __tablename__ = "tuner_measurement"
    __table_args__ = (
        Unique("trial_id", "digest", name="uq_tuner_measurement_content"),
        Index("ix_tuner_measurement_stage", "stage", "trial_id"),
    )
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("tuner_trial.id"))
    digest: Mapped[str] = mapped_column(String(32), doc="of the content")
    stage: Mapped[str] = mapped_column(String(20), doc="screen, final, remeasure or estimate")
    protocol: Mapped[str] = mapped_column(String(60), doc="how times were taken")
    median_us: Mapped[float] = mapped_column(Double, doc="microseconds a call")
    low_us: Mapped[float] = mapped_column(Double, doc="lower end of the median's 95 % interval")
    high_us: Mapped[float] = mapped_column(Double, doc="upper end")
    sample_count: Mapped[int] = mapped_column(Integer)
    samples_us: Mapped[list[float]] = mapped_column(Json, doc="microseconds a call, one a sample, in the order taken")
    rounds: Mapped[list[int]] = mapped_column(Json, doc="the round of each sample")
    processes: Mapped[list[int]] = mapped_column(Json, doc="the process that took each sample")
    states: Mapped[list[dict[str, Any]]] = mapped_column(
        Json, doc="clocks, temperature, power and throttle reasons: one a sample, or one for all"
    )
    notes: Mapped[list[str]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class WinnerRow(Base):
    """What a study's final re-measurement chose. A study that is run again adds a row; none is changed."""

    __tablename__ = "tuner_winner"
    __table_args__ = (Index("ix_tuner_winner_best", "problem_key", "device_key", "estimated", "created_at"),)
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True, doc="unique over databases")
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_study.id"), index=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("tuner_trial.id"), index=True)
    problem_key: Mapped[str] = mapped_column(ForeignKey("tuner_problem.key"))
    device_key: Mapped[str] = mapped_column(ForeignKey("tuner_device.key"))
    stack_key: Mapped[str] = mapped_column(ForeignKey("tuner_stack.key"))
    kind: Mapped[str] = mapped_column(String(10), doc="winner or tie")
    verdict: Mapped[str] = mapped_column(Text, doc="in words")
    estimated: Mapped[bool] = mapped_column(Boolean, doc="whether its times are estimates")
    median_us: Mapped[float] = mapped_column(Double, doc="microseconds a call")
    low_us: Mapped[float] = mapped_column(Double, doc="lower end of its 95 % interval")
    high_us: Mapped[float] = mapped_column(Double, doc="upper end")
    margin: Mapped[float | None] = mapped_column(Double, doc="by how much it beats the next: 0.03 is 3 %")
    margin_low: Mapped[float | None] = mapped_column(Double, doc="lower end of the margin's interval")
    margin_high: Mapped[float | None] = mapped_column(Double, doc="upper end")
    plain_key: Mapped[str] = mapped_column(Key, doc="config key of the plain config it was compared with")
    plain_us: Mapped[float | None] = mapped_column(Double, doc="the plain config's time, microseconds")
    speedup: Mapped[float | None] = mapped_column(Double, doc="plain_us over median_us")
    tie_set: Mapped[list[str]] = mapped_column(Json, doc="config keys that cannot be told apart")
    finalists: Mapped[list[dict[str, Any]]] = mapped_column(Json, doc="key, label and time of each")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    replaces: Mapped[list[str] | None] = mapped_column(
        Json, doc="uids of the study's winners that were known when it was chosen; NULL: none"
    )
