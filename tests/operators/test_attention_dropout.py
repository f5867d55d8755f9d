"""Dropout of attention's weights: which stay, the problem, the reference, and what the check sees."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import tuner
from tests.operators.attention_formula import attention
from tests.operators.test_self_checks import ATTENTION, run
from tests.test_variants import run as run_script
from tuner.check_plan import plan
from tuner.errors import ProblemError
from tuner.operators import get
from tuner.operators.dropout import kept, philox, threshold
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache
from tuner.space import load_space
from tuner.targets import target

BF16 = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=4)
SHAPE = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 33, "kv_len": 57, "head_dim": 16}
OPERATOR = get("attention_fwd")
SEED = torch.tensor([2**62 + 5])


def problem_of(dropout=0.17, **options):
    return OPERATOR.problem(SHAPE, "bf16", {"dropout": dropout, **options})


def stay(seed=SEED, rows=None, kv_len=57, p=0.17, first=0):
    """Of every batch and head of SHAPE: bool [batch, heads, rows, kv_len]."""
    batch, head = torch.arange(2).repeat_interleave(4), torch.arange(4).repeat(2)
    rows = torch.arange(33) if rows is None else rows
    return kept(seed, batch, head, rows.expand(8, -1), kv_len, p, first=first).unflatten(0, (2, 4))


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the known answers that Random123 (the generator's own authors) comes with
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_generator_gives_its_known_answers(counter, key, words):
    number = key[0] | key[1] << 32
    seed = torch.tensor([number - 2**64 if number >= 2**63 else number])
    assert tuple(int(word) for word in philox(tuple(torch.tensor([c]) for c in counter), seed)) == words


def test_the_template_keeps_the_same_weights_bit_by_bit():
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    (answer,) = run_script("kept_weights.py", [()], 100, TRITON_INTERPRET="1")
    assert answer == {"compared": 3840, "different": 0}


def test_which_weights_stay_depends_on_their_own_place_alone():
    every = stay()
    later = torch.tensor([30, 5, 17])
    assert torch.equal(stay(rows=later), every[:, :, later])
    assert torch.equal(stay(kv_len=33, first=24), every[..., 24:])
    assert torch.equal(stay(kv_len=20), every[..., :20])
    others = {
        "seed": stay(seed=SEED + 1), "its high half": stay(seed=SEED - 2**40), "batch": every.roll(1, 0),
        "head": every.roll(1, 1), "query": every.roll(1, 2), "key": every.roll(1, 3), "eight keys on": every.roll(8, 3),
    }  # fmt: skip
    # Independent masks agree on a weight with the chance p^2 + (1 - p)^2.
    chance, count = 0.17**2 + 0.83**2, every.numel()
    spread = 5.0 * math.sqrt(chance * (1.0 - chance) / count)
    agreeing = {name: float((other == every).double().mean()) for name, other in others.items()}
    assert {name: share for name, share in agreeing.items() if abs(share - chance) > spread} == {}


@pytest.mark.parametrize("p", [2.0**-20, 0.17, 0.5, 1.0 - 2.0**-8])
def test_as_many_stay_as_should(p):
    rows, count = torch.arange(128), 8 * 128 * 200
    chance = 1.0 - threshold(p) / 2**16
    assert chance == pytest.approx(1.0 - p, abs=2**-17)
    found = int(stay(rows=rows, kv_len=200, p=p).sum())
    assert abs(found - chance * count) <= 5.0 * math.sqrt(chance * (1.0 - chance) * count)


def test_without_dropout_the_problem_is_what_it_was_and_with_it_launch_gets_more():
    plain = OPERATOR.problem(SHAPE, "bf16")
    assert problem_of(0) == problem_of(None) == plain and "dropout" not in OPERATOR.scalars(plain)
    problem = problem_of()
    assert OPERATOR.scalars(problem)["dropout_p"] == 0.17
    assert set(OPERATOR.launch_tensors(problem)) - set(OPERATOR.launch_tensors(plain)) == {"dropout_seed"}
    assert OPERATOR.bytes_moved(problem) - OPERATOR.bytes_moved(plain) == 8
    assert OPERATOR.flops(problem) == OPERATOR.flops(plain)
    templates = load_space("attention_fwd").bind(problem, target("h200")).templates
    assert templates == ("pointer",)


@pytest.mark.parametrize("value", [1.0, 1.5, -0.1, math.nan, math.inf])
def test_what_is_no_chance_is_refused(value):
    with pytest.raises(ProblemError, match="dropout must be below 1 and at least 0"):
        problem_of(value)


def test_every_family_has_a_seed_of_its_own_and_small_problems_other_chances():
    seeds = {
        int(OPERATOR.make_inputs(problem_of(), f, s, "cpu")["dropout_seed"]) for f in ("randn", "huge") for s in (0, 1)
    }
    assert len(seeds) == 4 and max(seeds) > 2**32
    small = OPERATOR.check_problems(problem_of(0.4), {"q_len": 16, "kv_len": 16}, {})
    assert {p.settings["dropout"] for p in small} == {0.4, 0.17, 1.0 - 2.0**-8, 2.0**-20}


def test_a_v_is_so_small_that_what_stays_of_it_is_a_number_of_the_format():
    for p, largest in ((0.17, 100.0), (1.0 - 2.0**-12, 100.0 / 16)):
        problem = OPERATOR.problem(SHAPE, "fp16", {"dropout": p})
        v = OPERATOR.make_inputs(problem, "v_offset", 0, "cpu")["v"].float()
        assert float(v.mean()) == pytest.approx(largest, rel=1e-2) and float(v.max()) / (1.0 - p) < 65504.0


def test_a_variation_moves_nothing_whose_place_decides():
    variation = OPERATOR.variation(problem_of(), "cpu", 5)
    assert not variation.shifts and set(variation.signs) == {"q", "k", "v", "out"}


@pytest.mark.parametrize("others", [{}, {"causal": True, "sinks": True}])
@pytest.mark.parametrize("p", [0.17, 1.0 - 2.0**-8])
def test_the_reference_is_the_formula(p, others):
    problem = problem_of(p, **others)
    inputs = OPERATOR.make_inputs(problem, "randn", 3, "cpu")
    reference = OPERATOR.reference(problem, inputs, BF16).outputs
    # Over a v of unit vectors attention gives its weights.
    unit = {**inputs, "v": torch.eye(57).expand(2, 2, 57, 57)}
    weights, lse = attention(unit, 0.25, right=0 if others else None)
    weights = weights * stay(inputs["dropout_seed"], p=p) / (1.0 - p)
    out = weights @ inputs["v"].double().repeat_interleave(2, dim=1)
    torch.testing.assert_close(reference["out"].expected, out, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(reference["lse"].expected, lse, rtol=1e-12, atol=1e-12)
    gone = (weights == 0.0).all(-1)
    assert bool((reference["out"].bound[~gone] > 0).all())


@pytest.mark.parametrize("p", [0.17, 1.0 - 2.0**-8])
def test_the_inputs_would_show_every_classical_error(p):
    checks = plan(OPERATOR, problem_of(p), {"q_len": 16, "kv_len": 16}, {}, BF16, full_size=False)
    errors = {e for c in checks.checks for e in OPERATOR.classical_errors(c.problem, checks.tiles) if "dro" in e}
    assert len(errors) == 7
    assert hidden_errors(OPERATOR, checks, "cpu", 0, ReferenceCache()) == ()


def test_a_files_self_check_knows_which_weights_stay_and_values_of_their_own_dim(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(tuner.__file__).parents[1]))
    source = ATTENTION.replace("FACTOR", "1.0").replace("scale, BLOCK", "scale, dropout_p, dropout_seed, BLOCK")
    drop = """
    from tuner.operators.dropout import kept
    heads, rows = torch.arange(q.shape[1]), torch.arange(q.shape[2]).expand(q.shape[1], -1)
    s = torch.softmax(s, -1).nan_to_num(0.0)
    s = s * kept(dropout_seed, torch.zeros_like(heads), heads, rows, k.shape[2], dropout_p) / (1.0 - dropout_p)
    out.copy_(s.to(v.dtype) @ v.repeat_interleave(group, 1))
"""
    last = next(line for line in source.splitlines() if "out.copy_" in line)
    own = {**SHAPE, "v_head_dim": 24}
    check = OPERATOR.self_check(OPERATOR.problem(own, "fp16", {"dropout": 0.3, "causal": True}))
    done = run(tmp_path, source.replace(last, drop) + check)
    assert done.returncode == 0 and ": OK" in done.stdout, done.stderr


@pytest.mark.parametrize("device", ["a100", "rtx4090", "h200", "mi300x"])
def test_there_are_configs_on_every_device(device):
    for head_dim, dtype in ((16, "bf16"), (72, "fp16"), (128, "bf16"), (256, "fp32")):
        problem = OPERATOR.problem({**SHAPE, "q_len": 3000, "head_dim": head_dim}, dtype, {"dropout": 0.5})
        assert [c.template for c in load_space("attention_fwd").bind(problem, target(device)).plain()] == ["pointer"]
