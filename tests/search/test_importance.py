from __future__ import annotations

import math
import subprocess
import sys
from itertools import product

import pytest

from tests.programs import environment
from tuner.search.importance import shares

GRID = [
    {"BLOCK": block, "num_warps": warps, "LOADS": loads, "FIXED": 1}
    for block, warps, loads in product((64, 128, 256, 512), (2, 4, 8), ("pointer", "tma"))
]
TIMES = [10.0 * 2.0 ** abs(math.log2(row["BLOCK"] / 256)) * (1.0 + 0.01 * (row["num_warps"] == 2)) for row in GRID]


@pytest.mark.parametrize("evaluator", ["ped-anova", "fanova"])
def test_the_parameter_that_decides_the_time_has_nearly_all_of_it(evaluator):
    if evaluator == "fanova":
        pytest.importorskip("sklearn", reason="fanova is scikit-learn's, which is no dependency")
    found = shares(GRID, TIMES, evaluator)
    assert next(iter(found)) == "BLOCK"
    assert set(found) == {"BLOCK", "num_warps", "LOADS"}  # FIXED has one value
    assert sum(found.values()) == pytest.approx(1.0)
    assert found["BLOCK"] > 0.8


def test_where_nothing_differs_nothing_is_said():
    assert shares(GRID, [5.0] * len(GRID), "ped-anova") == {}
    assert shares([{"a": 1}, {"a": 1}], [1.0, 2.0], "ped-anova") == {}
    assert shares([], [], "ped-anova") == {}


def test_an_evaluator_without_its_library_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from tuner.errors import MissingError\n"
        "from tuner.search.importance import shares\n"
        "try: shares([{'a': 1}, {'a': 2}], [1.0, 2.0], 'fanova')\n"
        "except MissingError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=tmp_path)
    assert done.stdout.startswith("the evaluator fanova needs scikit-learn, which is not installed; run `pip install")
