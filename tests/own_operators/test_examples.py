"""The two examples are right, without a GPU."""

from __future__ import annotations

import pytest

import tuner
from tests.checkout import checkout
from tuner.space import load_space
from tuner.targets import target

pytestmark = [pytest.mark.usefixtures("tune_environment", "standing_machine"), pytest.mark.slow]

MOE = {"tokens": 24, "topk": 2, "experts": 4, "hidden": 96, "intermediate": 40}
SMALL = "BLOCK_SIZE_M=16,BLOCK_SIZE_N=32,BLOCK_SIZE_K=32"


def example(name: str, operator: str) -> str:
    return f"{checkout() / f'examples/{name}/{name}.py'}:{operator}"


def test_the_norm_is_right():
    report = tuner.check(tuner.make_problem(example("rmsnorm", "rmsnorm"), {"rows": 64, "cols": 200}, "fp16"))
    assert report.passed, report.reason


def test_the_experts_product_is_right_where_tokens_are_spread_and_where_they_crowd():
    report = tuner.check(tuner.make_problem(example("moe", "moe_up"), MOE, "bf16"), config=SMALL)
    assert report.passed, report.reason
    assert {"randn", "crowded"} <= {family.family for family in report.families}


@pytest.mark.parametrize("tokens", [1, 16, 4096])
def test_the_space_of_the_experts_product_has_configs_for_few_and_many_tokens(tokens):
    shape = {"tokens": tokens, "topk": 2, "experts": 8, "hidden": 4096, "intermediate": 3584}
    problem = tuner.make_problem(example("moe", "moe_up"), shape, "bf16")
    bound = load_space(problem.operator).bind(problem, target("h200"))
    assert bound.size() > 100
    largest = max(int(config.values["BLOCK_SIZE_M"]) for config in bound.configs())
    assert largest == {1: 16, 16: 16, 4096: 128}[tokens]
