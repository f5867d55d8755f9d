"""Databases of strangers: every command answers or refuses in one line, quickly, and writes nowhere else."""

from __future__ import annotations

import math
import random
import sqlite3
from pathlib import Path

import pytest

from tests.trust.attempts import files_below
from tests.trust.database_attacks import attack_database, stranger
from tuner.config import Config
from tuner.errors import StoreError
from tuner.store.store import Store
from tuner.store.typed import typed
from tuner.trial import DeviceState, FamilyReport, Measurement

SEED = random.SystemRandom().randrange(2**32)
CASES = 24


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stranger") / "base.db"
    stranger(path)
    return path


@pytest.mark.filterwarnings("ignore")  # a hostile row may make numpy or a library warn, which is no harm
@pytest.mark.parametrize("case", range(CASES))
def test_hostile_rows_do_no_harm(base, tmp_path, case):
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "beside").write_text("as it was")
    print(f"seed {SEED}")
    attempts = attack_database(base, folder, random.Random(f"{SEED}/{case}"), commands=5)
    assert [(attempt.what, attempt.faults) for attempt in attempts if attempt.faults] == []
    assert files_below(tmp_path, but=(folder,)) == {"beside": b"as it was"}


def test_a_row_of_another_type_is_said_to_be_unreadable(base, tmp_path):
    path = tmp_path / "odd.db"
    path.write_bytes(base.read_bytes())
    with sqlite3.connect(path) as other:
        other.execute("UPDATE tuner_measurement SET low_us = 'fast'")
    other.close()
    with (
        Store.open(str(path), create=False, write=False) as store,
        pytest.raises(StoreError, match=r"has a row that cannot be read \(ValueError: .*low_us: .*number"),
    ):
        store.trial(1)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (DeviceState(sm_clock_mhz="1980"), "DeviceState.sm_clock_mhz"),
        ([{"a": DeviceState(throttle_reasons=("x", 7))}], "DeviceState.throttle_reasons"),
        (Measurement("final", "p", (1.0,), 1.0, 1.0, 1.0, rounds=(True,)), "Measurement.rounds"),
        ([(7, DeviceState(power_w="hot"))], "DeviceState.power_w"),
        (DeviceState(power_w=math.inf), "DeviceState.power_w: Input should be a finite number"),
        (Measurement("final", "p", (1.0,), 1.0, 1.0, 1.0, states=(DeviceState(power_w=b""),)), "DeviceState.power_w"),
    ],
)
def test_a_dataclass_is_held_to_its_annotations_wherever_it_is(value, said):
    with pytest.raises(ValueError, match=said):
        typed(value)


def test_the_error_of_a_wrong_result_may_be_infinite():
    value = FamilyReport("nan", "softmax rows=9 cols=99", False, math.inf, math.inf, 1e-3)
    assert typed(value) is value


def test_what_fits_comes_back_as_it_is():
    value = [Measurement("final", "p", (1.0, 2), 1, 1.0, 1.0, states=(DeviceState(),))]
    assert typed(value) is value


def test_a_config_that_chooses_what_it_lacks_is_refused():
    data = {"template": "t", "switches": {}, "launch": {"A": 1}, "chosen": ["A", "B"]}
    with pytest.raises(ValueError, match="chooses 'B', but has no value for it"):
        Config.from_json(data)
