from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from store_samples import H200, PROBLEM, STACK, VARIANT, finish_script, spec, start_script, timed

import tuner
from tuner.search import make_proposer
from tuner.space import load_space
from tuner.store.migrating import HEAD
from tuner.store.store import Store
from tuner.targets import target
from tuner.trial import Outcome

REAL = tuner.make_problem("softmax", {"rows": 64, "cols": 1024}, "bf16")
optuna = pytest.importorskip("optuna")


@contextmanager
def storage(url: str) -> Iterator[Any]:
    """Optuna's own storage, whose connections end with it."""
    opened = optuna.storages.RDBStorage(url)
    try:
        yield opened
    finally:
        opened.remove_session()
        opened.engine.dispose()


def searched(url: str, name: str) -> int:
    with warnings.catch_warnings(), storage(url) as opened:
        warnings.simplefilter("ignore")
        study = optuna.create_study(storage=opened, study_name=name, load_if_exists=True)
        study.tell(study.ask(), 1.0)
        return len(study.trials)


def logged(url: str, name: str) -> list[Any]:
    with storage(url) as opened:
        return list(optuna.load_study(study_name=name, storage=opened).trials)


def test_optuna_lives_in_the_same_postgresql_database(postgres_url: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    assert searched(postgres_url, "before") == 1
    with Store.open(postgres_url) as store:
        study = store.start_study(spec())
        proposer = make_proposer(
            load_space("softmax").bind(REAL, target("h200")), storage=store.url, study_name=study.optuna_name
        )
        with closing(proposer):
            for number in range(3):
                proposal = proposer.ask()
                assert proposal is not None
                proposer.tell(proposal, Outcome.TIMED, 10.0 + number)
        store.record_trial(study.id, timed(1), VARIANT)
        assert len(logged(postgres_url, study.optuna_name)) == 3
    assert searched(postgres_url, "before") == 2
    assert tuner.check_database(db=postgres_url).sound


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_log_to_one_optuna_study_and_lose_no_trial(
    kind: str, path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{path}" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    Store.open(url).close()
    workers = [start_script("store_script.py", "search", url, 10) for _ in range(2)]
    for worker in workers:
        assert finish_script(worker) == "10\n"
    trials = logged(url, "shared")
    assert [t.number for t in trials] == list(range(20))
    assert {t.state.name for t in trials} == {"COMPLETE"}


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
