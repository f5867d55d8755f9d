"""Numbers are put into words for people."""

from __future__ import annotations

from tuner.wording import counted


def test_one_is_singular_and_every_other_number_is_plural() -> None:
    assert [counted(n, "row") for n in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
    assert [counted(n, "entry", "entries") for n in (0, 1, 2)] == ["0 entries", "1 entry", "2 entries"]
