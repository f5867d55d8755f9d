from __future__ import annotations

import numpy as np
import pytest

from tuner.search.candidates import Axis, Point
from tuner.search.features import ABSENT, feature_matrix


def matrix(axes: dict[str, tuple[Axis, ...]], *points: tuple[str, tuple[int, ...]]) -> list[list[float]]:
    rows = feature_matrix(axes, [Point(template, indices) for template, indices in points])
    assert rows.dtype == np.float32
    return [[round(float(x), 3) for x in row] for row in rows]


def test_a_number_is_its_rank_and_powers_of_two_need_no_second_column():
    axes = {"t": (Axis.of("BLOCK", (64, 128, 256)),)}
    assert matrix(axes, ("t", (0,)), ("t", (1,)), ("t", (2,))) == [[0.0], [0.5], [1.0]]


def test_how_often_a_number_is_divisible_by_two_is_a_column_where_the_rank_does_not_say_it():
    axes = {"t": (Axis.of("BLOCK", (24, 32, 40, 64)),)}
    rows = matrix(axes, *(("t", (i,)) for i in range(4)))
    assert rows == [[0.0, 0.5], [0.333, 0.833], [0.667, 0.5], [1.0, 1.0]]


def test_words_and_switches_are_one_unit_apart():
    axes = {"t": (Axis.of("LOADS", ("pointer", "tma", "block")), Axis.of("FAST", (True, False)))}
    rows = np.array(matrix(axes, ("t", (0, 0)), ("t", (1, 0)), ("t", (1, 1))))
    assert np.square(rows[0] - rows[1]).sum() == pytest.approx(1.0, abs=1e-2)
    assert np.square(rows[1] - rows[2]).sum() == pytest.approx(1.0, abs=1e-2)


def test_templates_share_the_columns_of_a_name_and_what_one_lacks_is_in_the_middle():
    axes = {
        "row": (Axis.of("num_warps", (4, 8)),),
        "online": (Axis.of("num_warps", (2, 4, 8, 16)), Axis.of("num_stages", (1, 2))),
    }
    rows = matrix(axes, ("row", (0,)), ("online", (1, 1)), ("online", (3, 0)))
    assert [row[2] for row in rows] == [0.333, 0.333, 1.0]  # 4, 4 and 16 warps; two columns of templates before
    assert [row[3] for row in rows] == [ABSENT, 1.0, 0.0]
    assert rows[0][:2] != rows[1][:2]


def test_a_parameter_with_one_value_has_no_column():
    assert matrix({"t": (Axis.of("a", (1,)), Axis.of("b", (1, 2)))}, ("t", (0, 1))) == [[1.0]]
    assert matrix({"t": (Axis.of("a", (1,)),)}, ("t", (0,))) == [[0.0]]
