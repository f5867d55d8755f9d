"""Search spaces in the place of a list: choices by name, or a YAML file, searched by Optuna."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
import torch

import tuner
from tests.autotuning import kernels
from tests.autotuning.standin import Launches, counting
from tuner.errors import AutotuneError, SpaceError
from tuner.search import DEFAULT_SAMPLER

YAML = """
operator: twice
templates:
  twice:
    source: twice.py
    parameters:
      BLOCK: [32, 64, 128, 256]
      num_warps: [1, 2, 4]
    constraints:
      - BLOCK <= 2 * n
      - BLOCK >= warp_size * num_warps
    plain: {BLOCK: 64, num_warps: 1}
"""


def launches(card):
    """The faster, the nearer the block is to 128 and the warps to 2."""

    def launch(x_ptr, n, BLOCK, num_warps, **_):
        x_ptr.mul_(2)
        return 2.0 + abs(BLOCK - 128) / 32 + abs(num_warps - 2)

    return Launches(kernels.twice, card, launch)


@pytest.fixture
def space(tmp_path: Path) -> Path:
    (tmp_path / "twice.py").write_text("")
    path = tmp_path / "space.yaml"
    path.write_text(YAML)
    return path


def test_choices_are_searched_and_the_first_of_each_is_the_plain_config(card):
    choices = {"BLOCK": [64, 32, 128], "num_warps": [4, 2]}
    kernel = tuner.autotune(choices, key=["n"])(launches(card))
    x = torch.ones(4)
    kernel[(1,)](x, 4)
    assert kernel.best_config.kwargs == {"BLOCK": 128} and kernel.best_config.num_warps == 2
    assert torch.equal(x, torch.full((4,), 2.0))
    study = tuner.show("1")
    assert len(study.trials) == 6 and study.summary.sampler == DEFAULT_SAMPLER
    assert study.trials[0].trial.config.values == {"BLOCK": 64, "num_warps": 4}
    assert study.winner.record.plain_us == 6.0
    with counting(card) as timed:
        again = tuner.autotune(choices, key=["n"])(launches(card))
        again[(1,)](torch.ones(4), 4)
        assert timed() == 0 and again.best_config.all_kwargs() == kernel.best_config.all_kwargs()


def test_at_most_so_many_trials_are_made_and_optuna_has_them(card, tmp_path):
    choices = {"BLOCK": [2**i for i in range(4, 14)], "num_warps": [1, 2, 4, 8], "num_stages": [1, 2, 3, 4]}
    kernel = tuner.autotune(choices, key=["n"], trials=12, seed=3)(launches(card))
    kernel[(1,)](torch.ones(4), 4)
    assert len(tuner.show("1").trials) == 12
    stored = optuna.load_study(study_name=tuner.show("1").optuna_name, storage=f"sqlite:///{tmp_path / 'tuner.db'}")
    assert len(stored.trials) == 12


def test_a_file_knows_the_values_of_the_key_and_the_device(card, space):
    kernel = tuner.autotune(space, key=["n"])(launches(card))
    kernel[(1,)](torch.ones(4), 64)
    tried = [t.trial.config.values for t in tuner.show("1").trials]
    assert all(32 * c["num_warps"] <= c["BLOCK"] <= 128 for c in tried) and len(tried) == 6
    assert kernel.best_config.kwargs == {"BLOCK": 128} and kernel.best_config.num_warps == 2
    assert tuner.show("1").space_text == YAML
    kernel[(1,)](torch.ones(4), 16)
    assert kernel.best_config.kwargs == {"BLOCK": 32}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("operator: twice", "operator: thrice", r"space.yaml:2: operator: it is for thrice, but .* is called twice"),
        ("      BLOCK:", "      BLOKC:", r"names `BLOCK`, which is not known here"),
        ("num_warps: [1, 2, 4]", "num_warps: [1, 3]", "num_warps.*3 is not a power of two"),
        ("BLOCK <= 2 * n", "BLOCK <= 0 * n", "no config is valid for .*twice n=64 fp32.*BLOCK <= 0"),
    ],
)
def test_a_file_that_does_not_fit_says_where(card, space, old, new, said):
    space.write_text(YAML.replace(old, new))
    kernel = tuner.autotune(str(space), key=["n"])(launches(card))
    with pytest.raises((SpaceError, AutotuneError), match=said):
        kernel[(1,)](torch.ones(4), 64)


def test_a_file_needs_a_dtype_that_it_knows(card, space):
    kernel = tuner.autotune(space, key=["n"])(launches(card))
    with pytest.raises(AutotuneError, match=r"knows fp32, .*, but twice was given int64"):
        kernel[(1,)](torch.ones(4, dtype=torch.int64), 64)


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"BLOK": [1]}, r"the kernel takes no BLOK \(did you mean `BLOCK`\?\)"),
        ({"BLOCK": 32}, "BLOCK must be a list of choices, but is 32"),
        ({"BLOCK": []}, "BLOCK must be a list of choices"),
        ({"BLOCK": [None]}, "None cannot be a choice of BLOCK"),
        ({}, "there is nothing to choose"),
    ],
)
def test_choices_that_cannot_be_meant_are_refused(card, choices, said):
    with pytest.raises(AutotuneError, match=said):
        tuner.autotune(choices, key=["n"])(launches(card))


def test_pruning_goes_with_a_list(card):
    with pytest.raises(AutotuneError, match="prune_configs_by goes with a list of configs"):
        tuner.autotune({"BLOCK": [32]}, key=["n"], prune_configs_by={"perf_model": lambda **_: 1.0})(launches(card))
