"""Searches Triton kernel variants and launch configurations, proves them right, measures them, and remembers.

The names in ``__all__`` are the API; they are imported on first use, so that ``import tuner`` loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.api import (
        best,
        check,
        list_operators,
        make_problem,
        query,
        regressions,
        remeasure,
        render,
        reproduce,
        show,
        studies,
        time,
        tune,
    )
    from tuner.autotuning.decorator import autotune
    from tuner.capturing.session import capture
    from tuner.config import Config
    from tuner.errors import TunerError
    from tuner.exports.exporting import ExportResult, FormatSummary
    from tuner.exports.lookup_table import Lookup
    from tuner.exports.public import check_export, export, export_formats, lookup
    from tuner.own_operators.declaration import OwnOperator, Size, TensorSpec, Units, Work
    from tuner.problem import Problem
    from tuner.querying import QueryResult
    from tuner.regression.report import RegressionReport
    from tuner.remeasurement import Remeasurement
    from tuner.replay.public import replay_search
    from tuner.replay.report import ReplayResult
    from tuner.reproducing import Reproduction
    from tuner.results import OperatorSummary, TimeResult, TuneResult
    from tuner.session import Session
    from tuner.space_recording import RecordResult, record
    from tuner.store.upkeep_records import Backup, DatabaseStats, Finding, Merge, Pruning, Soundness, Upgrade
    from tuner.study_importance import StudyImportance, importance
    from tuner.tuned_coverage import CoverageReport, coverage
    from tuner.upkeep import (
        backup_database,
        check_database,
        database_stats,
        merge_database,
        prune_database,
        upgrade_database,
    )

__all__ = [
    "Backup",
    "Config",
    "CoverageReport",
    "DatabaseStats",
    "ExportResult",
    "Finding",
    "FormatSummary",
    "Lookup",
    "Merge",
    "OperatorSummary",
    "OwnOperator",
    "Problem",
    "Pruning",
    "QueryResult",
    "RecordResult",
    "RegressionReport",
    "Remeasurement",
    "ReplayResult",
    "Reproduction",
    "Session",
    "Size",
    "Soundness",
    "StudyImportance",
    "TensorSpec",
    "TimeResult",
    "TuneResult",
    "TunerError",
    "Units",
    "Upgrade",
    "Work",
    "autotune",
    "backup_database",
    "best",
    "capture",
    "check",
    "check_database",
    "check_export",
    "coverage",
    "database_stats",
    "export",
    "export_formats",
    "importance",
    "list_operators",
    "lookup",
    "make_problem",
    "merge_database",
    "prune_database",
    "query",
    "record",
    "regressions",
    "remeasure",
    "render",
    "replay_search",
    "reproduce",
    "show",
    "studies",
    "time",
    "tune",
    "upgrade_database",
]

_HOMES = {
    "Backup": "tuner.store.upkeep_records",
    "Config": "tuner.config",
    "CoverageReport": "tuner.tuned_coverage",
    "DatabaseStats": "tuner.store.upkeep_records",
    "ExportResult": "tuner.exports.exporting",
    "Finding": "tuner.store.upkeep_records",
    "FormatSummary": "tuner.exports.exporting",
    "Lookup": "tuner.exports.lookup_table",
    "Merge": "tuner.store.upkeep_records",
    "OperatorSummary": "tuner.results",
    "OwnOperator": "tuner.own_operators.declaration",
    "Problem": "tuner.problem",
    "Pruning": "tuner.store.upkeep_records",
    "QueryResult": "tuner.querying",
    "RecordResult": "tuner.space_recording",
    "RegressionReport": "tuner.regression.report",
    "Remeasurement": "tuner.remeasurement",
    "ReplayResult": "tuner.replay.report",
    "Reproduction": "tuner.reproducing",
    "Session": "tuner.session",
    "Size": "tuner.own_operators.declaration",
    "Soundness": "tuner.store.upkeep_records",
    "StudyImportance": "tuner.study_importance",
    "TensorSpec": "tuner.own_operators.declaration",
    "TimeResult": "tuner.results",
    "TuneResult": "tuner.results",
    "TunerError": "tuner.errors",
    "Units": "tuner.own_operators.declaration",
    "Upgrade": "tuner.store.upkeep_records",
    "Work": "tuner.own_operators.declaration",
    "autotune": "tuner.autotuning.decorator",
    "backup_database": "tuner.upkeep",
    "capture": "tuner.capturing.session",
    "check_database": "tuner.upkeep",
    "check_export": "tuner.exports.public",
    "coverage": "tuner.tuned_coverage",
    "database_stats": "tuner.upkeep",
    "export": "tuner.exports.public",
    "export_formats": "tuner.exports.public",
    "importance": "tuner.study_importance",
    "lookup": "tuner.exports.public",
    "merge_database": "tuner.upkeep",
    "prune_database": "tuner.upkeep",
    "record": "tuner.space_recording",
    "replay_search": "tuner.replay.public",
    "upgrade_database": "tuner.upkeep",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "tuner.api")), name)


def __dir__() -> list[str]:
    return __all__
