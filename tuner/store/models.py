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
    key: Mapped[str] = mapped_column(Key, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), index=True)
    backend: Mapped[str] = mapped_column(String(20))
    arch: Mapped[str] = mapped_column(String(20))
    data: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class StackRow(Base):
    """A software stack; ``data`` is the whole ``Stack``."""

    __tablename__ = "tuner_stack"
    key: Mapped[str] = mapped_column(Key, primary_key=True)
    mode: Mapped[str] = mapped_column(String(10))
    label: Mapped[str] = mapped_column(String(200))
    triton: Mapped[str] = mapped_column(String(60))
    torch: Mapped[str] = mapped_column(String(60))
    driver: Mapped[str] = mapped_column(String(60))
    data: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ProblemRow(Base):
    """A problem. ``shape`` and ``options`` keep the operator's order."""

    __tablename__ = "tuner_problem"
    key: Mapped[str] = mapped_column(Key, primary_key=True)
    operator: Mapped[str] = mapped_column(String(100), index=True)
    label: Mapped[str] = mapped_column(Text)
    shape: Mapped[dict[str, Any]] = mapped_column(Json)
    dtype: Mapped[str] = mapped_column(String(10))
    options: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class VariantRow(Base):
    """A rendered source under the SHA-256 of its text."""

    __tablename__ = "tuner_variant"
    id: Mapped[str] = mapped_column(Hash, primary_key=True)
    operator: Mapped[str] = mapped_column(String(100))
    template: Mapped[str] = mapped_column(String(100))
    template_hash: Mapped[str] = mapped_column(Hash, index=True)
    switches: Mapped[dict[str, Any]] = mapped_column(Json)
    exp2: Mapped[str] = mapped_column(String(20))
    source: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class SpaceRow(Base):
    """A search space's text under the digest of its content."""

    __tablename__ = "tuner_space"
    digest: Mapped[str] = mapped_column(Hash, primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    text: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class StudyRow(Base):
    """A study, its budget, its owner and how far it is.

    ``wall_s`` and ``gpu_busy_s`` are totals over all runs; ``*_before`` what they were when the current run began.
    """

    __tablename__ = "tuner_study"
    __table_args__ = (
        Unique("problem_key", "device_key", "stack_key", "space_digest", "mode", name="uq_tuner_study_identity"),
    )
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    problem_key: Mapped[str] = mapped_column(ForeignKey("tuner_problem.key"))
    device_key: Mapped[str] = mapped_column(ForeignKey("tuner_device.key"))
    stack_key: Mapped[str] = mapped_column(ForeignKey("tuner_stack.key"))
    space_digest: Mapped[str] = mapped_column(ForeignKey("tuner_space.digest"))
    mode: Mapped[str] = mapped_column(String(10))
    sampler: Mapped[str] = mapped_column(String(60))
    seed: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(20))
    max_trials: Mapped[int | None] = mapped_column(Integer)
    max_seconds: Mapped[float | None] = mapped_column(Double)
    protocol: Mapped[str] = mapped_column(String(60))
    space_size: Mapped[int | None] = mapped_column(BigInteger)
    optuna_name: Mapped[str] = mapped_column(String(200))
    owner_host: Mapped[str | None] = mapped_column(String(255))
    owner_pid: Mapped[int | None] = mapped_column(Integer)
    owner_start: Mapped[str | None] = mapped_column(String(40))
    heartbeat_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    wall_s: Mapped[float] = mapped_column(Double)
    wall_s_before: Mapped[float] = mapped_column(Double)
    gpu_busy_s: Mapped[float] = mapped_column(Double)
    gpu_busy_s_before: Mapped[float] = mapped_column(Double)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
    finished_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


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
    config_key: Mapped[str] = mapped_column(Key)
    variant_id: Mapped[str] = mapped_column(ForeignKey("tuner_variant.id"), index=True)
    template: Mapped[str] = mapped_column(String(100))
    label: Mapped[str] = mapped_column(Text)
    config: Mapped[dict[str, Any]] = mapped_column(Json)
    outcome: Mapped[str] = mapped_column(String(20))
    reason: Mapped[str] = mapped_column(Text)
    value_us: Mapped[float | None] = mapped_column(Double)
    binary_hash: Mapped[str | None] = mapped_column(Hash)
    same_as: Mapped[str] = mapped_column(Key)
    compile_report: Mapped[dict[str, Any] | None] = mapped_column(Json)
    check_report: Mapped[dict[str, Any] | None] = mapped_column(Json)
    seed: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[dict[str, Any]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class StudyTrialRow(Base):
    """Which study used which trial, in which order, and whether it was known before."""

    __tablename__ = "tuner_study_trial"
    __table_args__ = (Unique("study_id", "ordinal", name="uq_tuner_study_trial_ordinal"),)
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_study.id"), primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("tuner_trial.id"), primary_key=True, index=True)
    ordinal: Mapped[int] = mapped_column(Integer)
    reused: Mapped[bool] = mapped_column(Boolean)
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
    digest: Mapped[str] = mapped_column(String(32))
    stage: Mapped[str] = mapped_column(String(20))
    protocol: Mapped[str] = mapped_column(String(60))
    median_us: Mapped[float] = mapped_column(Double)
    low_us: Mapped[float] = mapped_column(Double)
    high_us: Mapped[float] = mapped_column(Double)
    sample_count: Mapped[int] = mapped_column(Integer)
    samples_us: Mapped[list[float]] = mapped_column(Json)
    rounds: Mapped[list[int]] = mapped_column(Json)
    processes: Mapped[list[int]] = mapped_column(Json)
    states: Mapped[list[dict[str, Any]]] = mapped_column(Json)
    notes: Mapped[list[str]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class WinnerRow(Base):
    """What a study's final re-measurement chose. A study that is run again adds a row; none is changed."""

    __tablename__ = "tuner_winner"
    __table_args__ = (Index("ix_tuner_winner_best", "problem_key", "device_key", "estimated", "created_at"),)
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True)
    study_id: Mapped[int] = mapped_column(ForeignKey("tuner_study.id"), index=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("tuner_trial.id"), index=True)
    problem_key: Mapped[str] = mapped_column(ForeignKey("tuner_problem.key"))
    device_key: Mapped[str] = mapped_column(ForeignKey("tuner_device.key"))
    stack_key: Mapped[str] = mapped_column(ForeignKey("tuner_stack.key"))
    kind: Mapped[str] = mapped_column(String(10))
    verdict: Mapped[str] = mapped_column(Text)
    estimated: Mapped[bool] = mapped_column(Boolean)
    median_us: Mapped[float] = mapped_column(Double)
    low_us: Mapped[float] = mapped_column(Double)
    high_us: Mapped[float] = mapped_column(Double)
    margin: Mapped[float | None] = mapped_column(Double)
    margin_low: Mapped[float | None] = mapped_column(Double)
    margin_high: Mapped[float | None] = mapped_column(Double)
    plain_key: Mapped[str] = mapped_column(Key)
    plain_us: Mapped[float | None] = mapped_column(Double)
    speedup: Mapped[float | None] = mapped_column(Double)
    tie_set: Mapped[list[str]] = mapped_column(Json)
    finalists: Mapped[list[dict[str, Any]]] = mapped_column(Json)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
