from __future__ import annotations

import hashlib
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.stored_history import H200, NEW, OLD
from tuner.errors import UsageError
from tuner.regression.points import Point, as_point, is_version, parse_point, read_moment
from tuner.regression.sides import choose_sides
from tuner.regression.template_revisions import template_hashes
from tuner.store.history_records import StackUse

DEVICES = {H200.key: H200}
EARLY, LATE = (StackUse(H200.key, s.key, s, datetime(2026, m, 1, tzinfo=UTC)) for m, s in ((4, OLD), (5, NEW)))


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("3.6.0", "3.6", True), ("3.6.0", "3.6.0", True), ("3.60.0", "3.6", False), ("2.11.0+cpu", "2.11.0", True),
        ("2.11.0", "2.1", False), ("", "580", False), ("3.6.0", "", True),
    ],
)  # fmt: skip
def test_versions_are_given_whole_or_up_to_a_dot(version, wanted, fits):
    assert is_version(version, wanted) is fits


def test_a_point_is_read_from_text_or_values():
    point = parse_point("triton=3.6, driver=580,until=2026-05-01", "--before")
    assert point == Point(triton="3.6", driver="580", until=datetime(2026, 5, 1, 23, 59, 59, 999999, tzinfo=UTC))
    assert as_point({"triton": "3.6", "driver": "580", "date": "2026-05-01"}, "") == point
    assert as_point("", "") == Point() and as_point(point, "") is point
    assert parse_point(point.label, "").triton == "3.6"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3.6", "--before: cannot read '3.6'; write NAME=VALUE"),
        ("triton=3.6,triton=3.7", "triton is given twice"),
        ("tritn=3.6", "there is no 'tritn'; did you mean triton?"),
        ("since=yesterday", "since: cannot read 'yesterday'; write a date such as"),
        ("until=2026-01-01,date=2026-01-02", "date is short for until"),
        ("since=2026-02-01,until=2026-01-01", "since is after until"),
    ],
)
def test_what_is_no_point_says_why(text, said):
    with pytest.raises(UsageError, match=said):
        parse_point(text, "--before")


@pytest.mark.parametrize("text", ["0001-01-01T00:00+14:00", "9999-12-31T23:00-14:00"])
def test_a_moment_that_utc_has_not_is_refused(text):
    with pytest.raises(UsageError, match=r"--before: '.*' is before the year 1 or after 9999 in UTC"):
        read_moment(text, "--before")


def test_moments_are_utc_unless_they_say_otherwise():
    assert read_moment("2026-05-01", "x") == datetime(2026, 5, 1, tzinfo=UTC)
    assert read_moment("2026-05-01T12:00", "x") == datetime(2026, 5, 1, 12, tzinfo=UTC)
    shifted = read_moment("2026-05-01T12:00+02:00", "x")
    assert shifted == datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=2)))


def test_with_nothing_said_the_newest_stack_is_compared_with_the_one_before_it():
    sides = choose_sides(Point(), Point(), [EARLY, LATE], [EARLY, LATE], DEVICES)
    assert (sides.stacks_before, sides.stacks_after) == ({H200.key: (OLD.key,)}, {H200.key: (NEW.key,)})


def test_with_one_side_named_the_other_is_the_newest_other_stack():
    uses = [EARLY, LATE]
    sides = choose_sides(Point(), Point(triton="3.6"), uses, uses, DEVICES)
    assert sides.stacks_before == {H200.key: (NEW.key,)}
    sides = choose_sides(Point(triton="3.6"), Point(), uses, uses, DEVICES)
    assert sides.stacks_after == {H200.key: (NEW.key,)}


def test_with_one_time_named_the_other_side_is_the_rest():
    moment = datetime(2026, 5, 1, tzinfo=UTC)
    sides = choose_sides(Point(until=moment), Point(), [EARLY], [EARLY], DEVICES)
    assert sides.after.since == moment
    sides = choose_sides(Point(), Point(since=moment), [EARLY], [EARLY], DEVICES)
    assert sides.before.until == moment


@pytest.mark.parametrize(
    ("before", "after", "uses", "said"),
    [
        (Point(), Point(), [EARLY], "every device has results of one software stack only"),
        (Point(), Point(), [], "no results can be compared yet"),
        (Point(triton="9"), Point(), [EARLY, LATE], r"nothing is stored of triton=9; there is Triton 3.6.0"),
        (Point(triton="3.6"), Point(stack=OLD.key), [EARLY, LATE], "one and the same"),
        (Point(templates="v1"), Point(), [EARLY, LATE], "--after is missing: templates=v1 alone"),
    ],
)
def test_points_that_cannot_be_compared_say_why(before, after, uses, said):
    with pytest.raises(UsageError, match=said):
        choose_sides(before, after, uses, uses, DEVICES)


def test_a_device_with_one_stack_is_left_out_and_said_to_be():
    other = StackUse("other", OLD.key, OLD, EARLY.since)
    sides = choose_sides(Point(), Point(), [EARLY, LATE, other], [EARLY, LATE, other], DEVICES)
    assert sides.left_out == ("other is left out: its results are of one software stack only",)


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@t.example"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_the_templates_of_a_revision_are_named_by_their_hashes(tmp_path):
    folder = tmp_path / "variants"
    (folder / "softmax").mkdir(parents=True)
    (folder / "softmax/online.py").write_text("one = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    git(tmp_path, "tag", "v1")
    (folder / "softmax/online.py").write_text("two = 2\n")
    git(tmp_path, "commit", "-q", "-a", "-m", "two")
    assert template_hashes("v1", "--before", folder) == {hashlib.sha256(b"one = 1\n").hexdigest()}
    assert template_hashes("HEAD", "--before", folder) == {hashlib.sha256(b"two = 2\n").hexdigest()}
    with pytest.raises(UsageError, match=r"--before: templates=v9: git says of .*v9"):
        template_hashes("v9", "--before", folder)
    with pytest.raises(UsageError, match="is no git revision"):
        template_hashes("--help", "--before", folder)
