from __future__ import annotations

import sqlite3
import warnings
from pathlib import Path

import pytest
from store_samples import H200, PROBLEM, STACK, VARIANT, spec, timed

from tuner.store.migrating import HEAD
from tuner.store.store import Store

optuna = pytest.importorskip("optuna")


def searched(url: str, name: str) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(storage=url, study_name=name, load_if_exists=True)
        study.tell(study.ask(), 1.0)
        return len(study.trials)


def test_optuna_lives_in_the_same_file_whoever_comes_first(path: Path) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    url = f"sqlite:///{path}"
    assert searched(url, "before") == 1
    with Store.open(url) as store:
        study = store.start_study(spec())
        store.record_trial(study.id, timed(1), VARIANT)
        assert searched(store.url, study.optuna_name) == 1
        store.record_trial(study.id, timed(2), VARIANT)
    with Store.open(str(path), create=False) as store:
        assert len(store.known_trials(PROBLEM.key, H200.key, STACK.key)) == 2
        assert searched(store.url, study.optuna_name) == 2
    assert searched(url, "before") == 2
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT version_num FROM tuner_alembic_version").fetchone() == (HEAD,)
        assert other.execute("SELECT count(*) FROM alembic_version").fetchone() == (1,)
    other.close()
