"""Numbers read back together."""

from __future__ import annotations

import torch

from tuner.reading import Reading


def test_each_reading_has_its_own_values_in_its_own_order_whatever_their_formats():
    first = Reading([torch.tensor([1, 2]), torch.tensor(0.5, dtype=torch.float64), torch.tensor(True)])
    second = Reading([torch.tensor([3.0, float("inf")], dtype=torch.float64), torch.tensor(7)])
    empty = Reading([])
    Reading.fetch([first, empty, second])
    assert first.values == [1.0, 2.0, 0.5, 1.0]
    assert second.values == [3.0, float("inf"), 7.0]
    assert empty.values == []


def test_nothing_is_read_where_nothing_is_asked_for():
    Reading.fetch([])
    Reading.fetch([Reading([])])
