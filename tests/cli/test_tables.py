"""Tables in a file or a pipe."""

from __future__ import annotations

from tuner.cli.tables import print_facts, print_table


def test_a_table_in_a_pipe_has_no_blanks_at_the_end_of_its_lines(capsys):
    print_table("", ("what", "found"), [("gpu", "none"), ("cores", "2")], right=("found",))
    assert capsys.readouterr().out == "\n what    found\n ─────────────\n gpu      none\n cores       2\n\n"


def test_facts_in_a_pipe_have_no_blanks_at_the_end_of_their_lines(capsys):
    print_facts([("time", "4.88 us"), ("device", "NVIDIA H200"), ("study", None)])
    assert capsys.readouterr().out == "time    4.88 us\ndevice  NVIDIA H200\n"
