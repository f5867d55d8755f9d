"""Wrong configs that tuners are known to have picked, planted in a shipped template: never a winner here.

Each is right in some configs of the space and wrong in others, which is what makes it dangerous: on a fast wrong config
a tuner that does not check, or checks one config for all, ends up.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import tuner
from tests.mutation.rewriting import Change, rewrite
from tuner import shipped
from tuner.config import Config
from tuner.trial import Outcome

pytestmark = pytest.mark.usefixtures("tune_environment", "standing_machine")
pytest.importorskip("triton", reason="Triton runs on Linux only")

CHOSEN = {"USE_EXP2": True, "TILE_ORDER": "ascending", "DOT_PRECISION": "ieee"}
PRECISION = {"p": "dtype", "dot": "16bit", "tiles": "cdiv(kv_len, BLOCK_N)"}
# triton-lang/triton#8853: where BLOCK_M < BLOCK_N the tiles that take no mask reach past the diagonal.
DIAGONAL = Change(
    "tl.maximum(unmasked, 0) // BLOCK_N * BLOCK_N",
    "(tl.maximum(unmasked, 0) + tl.maximum(BLOCK_N - BLOCK_M, 0)) // BLOCK_N * BLOCK_N",
)
# intel/intel-xpu-backend-for-triton#7317: a loop over tiles of one size goes on in steps of the other.
STEP = Change("tl.range(start, end, BLOCK_N, **any_more)", "tl.range(start, end, q.shape[0], **any_more)")
# fla-org/flash-linear-attention#945: with one number of warps the same launch gives other bits each time.
BITS = Change(
    "batch, heads, q_len, head_dim = q.shape",
    """\
batch, heads, q_len, head_dim = q.shape
launch.calls = getattr(launch, "calls", 0) + 1
scale *= 1 + (num_warps == 4) * (launch.calls % 2) * 2.0**-23""",
)


def space_of(source: str, **choices: list[int]) -> str:
    """The space of one template: the problem fixes what it fixes in the shipped one, and ``CHOSEN`` says the rest."""
    path = shipped.search_spaces_dir() / "attention_fwd.yaml"
    switches = yaml.safe_load(path.read_text(encoding="utf-8"))["templates"]["pointer"]["switches"]
    parameters = {**choices, "num_stages": [2]}
    table = {
        "source": source,
        "switches": {name: given if isinstance(given, str) else [CHOSEN[name]] for name, given in switches.items()},
        "parameters": parameters,
        "tiles": {"q_len": "BLOCK_M", "kv_len": "BLOCK_N"},
        "precision": PRECISION,
        "plain": {**CHOSEN, **{name: values[0] for name, values in parameters.items()}},
    }
    return yaml.safe_dump({"operator": "attention_fwd", "templates": {"wrong": table}}, sort_keys=False)


def tried(folder: Path, change: Change, causal: bool, **choices: list[int]) -> tuple[dict[str, Outcome], Config]:
    """The outcome of every config of a space over the pointer template with ``change``, and the winner."""
    template = (shipped.variants_dir() / "attention_fwd" / "pointer.py").read_text(encoding="utf-8")
    (folder / "wrong.py").write_text(rewrite(template, [change]), encoding="utf-8")
    space = folder / "wrong.yaml"
    space.write_text(space_of("wrong.py", **choices), encoding="utf-8")
    shape = {"batch": 1, "heads": 2, "q_len": 128, "kv_len": 128, "head_dim": 16}
    problem = tuner.make_problem("attention_fwd", shape, "bf16", {"causal": causal})
    database = str(folder / "tuner.db")
    result = tuner.tune(problem, space=space, gpu=False, db=database)
    assert result.winner is not None
    assert tuner.best(problem, db=database, estimated=True) == result.winner
    shown = tuner.show(result.study.name, db=database)
    names = ("BLOCK_M", "BLOCK_N", "num_warps")
    outcomes = {"/".join(str(t.trial.config.values[n]) for n in names): t.trial.outcome for t in shown.trials}
    return outcomes, result.winner.config


def test_blocks_that_leave_part_of_the_diagonal_unmasked_never_win(tmp_path):
    outcomes, winner = tried(tmp_path, DIAGONAL, True, BLOCK_M=[16, 32], BLOCK_N=[16, 32], num_warps=[1])
    right = {"16/16/1": Outcome.TIMED, "32/16/1": Outcome.TIMED, "32/32/1": Outcome.TIMED}
    assert outcomes == {**right, "16/32/1": Outcome.WRONG}
    assert winner.values["BLOCK_M"] >= winner.values["BLOCK_N"]


def test_blocks_that_are_right_only_where_they_agree_win_only_there(tmp_path):
    outcomes, winner = tried(tmp_path, STEP, False, BLOCK_M=[32, 16], BLOCK_N=[16, 32], num_warps=[1])
    right = {"16/16/1": Outcome.TIMED, "32/32/1": Outcome.TIMED}
    assert outcomes == {**right, "32/16/1": Outcome.WRONG, "16/32/1": Outcome.WRONG}
    assert winner.values["BLOCK_M"] == winner.values["BLOCK_N"]


def test_a_number_of_warps_that_is_not_deterministic_never_wins(tmp_path):
    outcomes, winner = tried(tmp_path, BITS, False, BLOCK_M=[64], BLOCK_N=[32], num_warps=[4, 2])
    assert outcomes == {"64/32/4": Outcome.WRONG, "64/32/2": Outcome.TIMED}
    assert winner.values["num_warps"] == 2
