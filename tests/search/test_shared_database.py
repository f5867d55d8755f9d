"""Several processes, one database; and the shipped search space."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import optuna
import pytest

from tuner.errors import StoreError
from tuner.operators import get
from tuner.search import make_proposer
from tuner.search.study_log import store_errors
from tuner.space import load_space
from tuner.targets import target
from tuner.trial import Outcome

WRITER = textwrap.dedent(
    """
    import sys
    from tuner.operators import get
    from tuner.search import make_proposer
    from tuner.space import load_space
    from tuner.targets import target
    from tuner.trial import Outcome

    bound = load_space("softmax").bind(get("softmax").problem({"rows": 64, "cols": 32768}, "bf16"), target("sm_90"))
    proposer = make_proposer(bound, seed=int(sys.argv[2]), storage=sys.argv[1], study_name="study " + sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(25):
        proposer.tell(proposer.ask(), Outcome.TIMED, 1.0 + number)
    """
)


def test_processes_that_write_to_one_new_database_at_once_lose_nothing(tmp_path):
    url = f"sqlite:///{tmp_path / 'db.sqlite'}"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(4)
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.communicate("go\n")
        assert writer.returncode == 0
    for n in range(4):
        assert len(optuna.load_study(study_name=f"study {n}", storage=url).trials) == 25


def test_the_shipped_space_gives_valid_and_distinct_configs_plain_ones_first():
    problem = get("softmax").problem({"rows": 4096, "cols": 32768}, "bf16")
    bound = load_space("softmax").bind(problem, target("h200"))
    proposer = make_proposer(bound, seed=0)
    configs = []
    for number in range(60):
        proposal = proposer.ask()
        assert proposal is not None
        configs.append(proposal.config)
        proposer.tell(proposal, Outcome.TIMED, 10.0 + number % 7)
    assert configs[: len(bound.plain())] == list(bound.plain())
    assert len({c.key for c in configs}) == 60
    assert {c.key for c in configs} <= {c.key for c in bound.configs()}


def test_ctrl_c_in_the_middle_of_a_commit_is_ctrl_c_and_no_error_of_the_database():
    def commit(interrupted: bool) -> None:
        try:
            if interrupted:
                raise KeyboardInterrupt
            raise ValueError("the disk is full")
        finally:
            # As SQLAlchemy does where a commit is cut off, and Optuna of what SQLAlchemy raises.
            try:
                raise RuntimeError("commit() cannot be called here")
            except RuntimeError as error:
                raise optuna.exceptions.StorageInternalError("An exception is raised during the commit.") from error

    with pytest.raises(KeyboardInterrupt), store_errors():
        commit(True)
    with pytest.raises(StoreError, match="An exception is raised during the commit"), store_errors():
        commit(False)
