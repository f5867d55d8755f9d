"""Opening a database again is cheap, and sees what is there then."""

from __future__ import annotations

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sqlalchemy import event
from store_samples import PROBLEM, VARIANT, spec, timed

import tuner
from tests.programs import environment
from tuner.store.idle_engines import _IDLE, MOST_IDLE
from tuner.store.records import WinnerRecord
from tuner.store.store import Store


def filled(path: Path, us: float = 10.0) -> str:
    with Store.open(str(path)) as store:
        study = store.start_study(spec())
        trial = store.record_trial(study.id, timed(1, us), VARIANT)
        store.record_winner(study.id, WinnerRecord(trial, "winner", "v", us, us, us, False))
        store.finish_study(study.id, "finished", 1.0, 0.0)
    return str(path)


def test_what_was_compiled_once_is_not_compiled_again(path: Path) -> None:
    db = filled(path)
    hits: list[str] = []
    with Store.open(db, write=False) as store:
        engine = store._database.engine
        event.listen(
            engine, "after_cursor_execute", lambda *given: hits.append(given[4]._get_cache_stats()), named=False
        )
        store.best(PROBLEM, None)
    hits.clear()
    assert tuner.best(PROBLEM, db=db) is not None
    statements = [hit for hit in hits if "raw sql" not in hit]
    assert len(statements) == 2 and all(hit.startswith("cached since") for hit in statements)


def test_a_file_that_took_the_place_of_another_is_read(path: Path, tmp_path: Path) -> None:
    db = filled(path)
    first = tuner.best(PROBLEM, db=db)
    Path(filled(tmp_path / "new.db", us=5.0)).replace(path)
    for side in ("-wal", "-shm"):
        path.with_name(path.name + side).unlink(missing_ok=True)
    second = tuner.best(PROBLEM, db=db)
    assert first is not None and second is not None
    assert (first.record.median_us, second.record.median_us) == (10.0, 5.0)


def test_each_open_store_has_an_engine_of_its_own_and_none_keeps_a_file_open(path: Path) -> None:
    db = filled(path)
    with Store.open(db, write=False) as one, Store.open(db, write=False) as two:
        assert one._database.engine is not two._database.engine
        assert one.best(PROBLEM, None) == two.best(PROBLEM, None)
    gc.collect()
    links = [p.resolve().name for p in Path("/proc/self/fd").iterdir() if p.exists()]
    assert path.name not in links


def test_threads_ask_at_once(path: Path) -> None:
    db = filled(path)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: tuner.best(PROBLEM, db=db), range(24)))
    assert {w.record.median_us for w in found if w is not None} == {10.0} and None not in found


def test_few_engines_wait(tmp_path: Path) -> None:
    for number in range(MOST_IDLE + 3):
        Store.open(str(tmp_path / f"{number}.db")).close()
    assert len(_IDLE) <= MOST_IDLE


def test_a_winner_is_read_without_what_migrates(path: Path) -> None:
    script = (
        "import sys, tuner\n"
        "problem = tuner.make_problem('softmax', {'rows': 4096, 'cols': 1024}, 'bf16')\n"
        f"tuner.best(problem, db={filled(path)!r})\n"
        "sys.exit(sorted({name.split('.')[0] for name in sys.modules} & {'alembic', 'optuna', 'torch', 'triton'}) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
