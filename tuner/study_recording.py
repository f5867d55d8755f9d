"""A stored study's trials as a recording, which searches can be replayed on."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.config import Config
from tuner.replay.cells import config_of
from tuner.replay.recording import Recording, Row
from tuner.store.records import StoredTrial, StudyDetail


def recording_of(name: str, detail: StudyDetail, plain: Sequence[Config]) -> Recording:
    """A study's trials as a recording. What follows from the chosen values is left out of its configs.

    ``plain``: the plain configs of the study's space.
    """
    summary = detail.summary
    about = {
        "device": detail.device.name,
        "problem": summary.problem.label,
        "triton": summary.stack.triton,
        "torch": summary.stack.torch,
        "protocol": summary.protocol,
        "estimated": summary.estimated,
    }
    rows = tuple(_row(entry.trial) for entry in detail.trials)
    return Recording(name, rows, about, tuple(chosen_only(config).key for config in plain))


def _row(trial: StoredTrial) -> Row:
    took_ms = {step: 1000.0 * trial.seconds.get(step, 0.0) for step in ("compile", "check", "time")}
    return Row(
        chosen_only(trial.config), trial.outcome, trial.value_us, took_ms["compile"], took_ms["check"], took_ms["time"]
    )


def chosen_only(config: Config) -> Config:
    """``config`` as a recording has it: without what follows from the values that were chosen."""
    return config_of(config.template, {name: config.values[name] for name in config.chosen})
