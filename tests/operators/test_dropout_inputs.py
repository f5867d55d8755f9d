"""The seeds that a dropout is checked with."""

from __future__ import annotations

import pytest

from tuner.operators import get


@pytest.mark.parametrize("seed", range(5))
def test_seeds_of_the_families_differ_and_use_all_64_bits(seed):
    operator = get("attention_fwd")
    shape = {"batch": 1, "heads": 1, "q_len": 8, "kv_len": 16, "head_dim": 16}
    problem = operator.problem(shape, "fp16", {"dropout": 0.3})
    families = operator.families(problem)
    seeds = [int(operator.make_inputs(problem, family, seed, "cpu")["dropout_seed"]) for family in families]
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) < -(2**62) and max(seeds) > 2**61
