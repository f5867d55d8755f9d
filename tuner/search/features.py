"""Configs as numbers that a model can learn from: one row a config, columns between 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tuner.config import Value
from tuner.search.candidates import Axis, Point

Matrix = npt.NDArray[np.float32]

ABSENT = 0.5
"""What a column is for a template that lacks the parameter: the middle, so that it says as little as possible."""

_SAME_COLUMN = 0.99  # a correlation above which a second column says nothing new
_ZERO_TWOS = 6


def feature_matrix(axes: Mapping[str, tuple[Axis, ...]], points: Sequence[Point]) -> Matrix:
    """The rows of ``points``, float32, shape (points, columns).

    A number gives its rank among the parameter's values, and how often it is divisible by two where that is something
    else (kernels like multiples of large powers of two). A word, a switch, and the template (where there are several)
    give a column for each of their values. Parameters of one name share their columns: what 8 warps do in one template
    says something about 8 warps in another.
    """
    columns: list[Matrix] = []
    where = {t: np.flatnonzero([p.template == t for p in points]) for t in axes}
    names = dict.fromkeys(axis.name for own in axes.values() for axis in own)
    if len(axes) > 1:
        place = {template: at for at, template in enumerate(axes)}
        columns.append(_unit_columns(np.array([place[p.template] for p in points]), len(axes)))
    for name in names:
        having = {t: (at, axis) for t, own in axes.items() for at, axis in enumerate(own) if axis.name == name}
        values = tuple(dict.fromkeys(v for _, axis in having.values() for v in axis.values))
        ordered = all(axis.ordered for _, axis in having.values())
        whole = Axis(name, tuple(sorted(values)) if ordered else values, ordered)
        place_of = {value: at for at, value in enumerate(whole.values)}
        index = np.full(len(points), -1)
        for template, (at, axis) in having.items():
            rows = where[template]
            to_whole = np.array([place_of[value] for value in axis.values])
            index[rows] = to_whole[np.array([points[row].indices[at] for row in rows.tolist()], dtype=np.int64)]
        if len(whole.values) > 1:
            columns.append(_number_columns(index, whole.values) if ordered else _unit_columns(index, len(values)))
    if not columns:
        return np.zeros((len(points), 1), dtype=np.float32)
    return np.concatenate(columns, axis=1)


def _number_columns(index: npt.NDArray[np.int64], values: Sequence[Value]) -> Matrix:
    ranks = np.arange(len(values)) / (len(values) - 1)
    tables = [ranks]
    twos = np.array([_twos(value) for value in values], dtype=np.float64)
    if len(values) > 2 and twos.max() > twos.min() and abs(np.corrcoef(ranks, twos)[0, 1]) < _SAME_COLUMN:
        tables.append(twos / twos.max())
    table = np.array([*np.array(tables).T, np.full(len(tables), ABSENT)], dtype=np.float32)
    return table[index]  # -1, a template without the parameter, is the last row


def _unit_columns(index: npt.NDArray[np.int64], size: int) -> Matrix:
    """Two unlike values are one unit apart; one that is absent is as far from each."""
    table = np.eye(size + 1, size, dtype=np.float32) * np.float32(math.sqrt(0.5))
    return table[index]


def _twos(value: Value) -> int:
    """How often a whole number is divisible by two; 0 for others."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return (value & -value).bit_length() - 1 if value else _ZERO_TWOS
