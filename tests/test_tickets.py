from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine_jobs import PROBLEM
from tuner.space import load_space
from tuner.targets import target
from tuner.tickets import TicketOffice
from tuner.workspace import Workspace


@pytest.fixture
def office(cache: Path, engine_spaces: Path) -> TicketOffice:
    return TicketOffice(
        load_space(engine_spaces / "faults.yaml").bind(PROBLEM, target("h200")), Workspace(cache), "3.9.0"
    )


def test_a_candidate_carries_plain_values_and_the_path_of_its_rendered_source(office):
    config = office.bound.parse("FAULT=wrong,PROGRAMS_PER_SM=2")
    candidate = office.candidate(config)
    assert candidate.key == config.key
    assert candidate.launch_arguments == {"BLOCK_COLS": 128, "NUM_PROGRAMS": 200, "IGNORED": 1, "num_warps": 1}
    assert (candidate.tiles, candidate.max_tiles) == ({"cols": 128}, {"cols": 1})
    assert (candidate.profile.input, candidate.profile.output, candidate.profile.tiles) == ("fp32", "fp32", 1)
    source = Path(candidate.source_path).read_text()
    assert source == office.variant(config).source
    assert "y = y * 1.02" in source and "if FAULT" not in source


def test_configs_that_differ_in_launch_parameters_share_one_variant(office):
    one, two = office.bound.parse("num_warps=1"), office.bound.parse("num_warps=2,IGNORED=3")
    assert office.variant(one) is office.variant(two)
    assert office.candidate(one).source_path == office.candidate(two).source_path
    assert office.variant(office.bound.parse("FAULT=wrong")).hash != office.variant(one).hash


def test_tickets_are_numbered(office):
    config = office.bound.parse("")
    tickets = [office.ticket(config) for _ in range(3)]
    assert [ticket.number for ticket in tickets] == [0, 1, 2]
    assert {ticket.variant.hash for ticket in tickets} == {office.variant(config).hash}
