"""Attention over packed sequences: its lengths, inputs, reference, bound, variations and classical errors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from tuner.check_plan import plan
from tuner.errors import ProblemError, UsageError
from tuner.operators import get, varlen_bound
from tuner.operators.small_problems import integer_class
from tuner.operators.varlen_errors import LONGEST_FOR_ALL, LSE_OF_THE_QUERY_BEFORE, ONE_TOKEN_ON, ONE_TOO_LONG
from tuner.operators.varlen_lengths import queries_and_keys
from tuner.own_kernel import read_own_kernel
from tuner.power import hidden_errors
from tuner.precision import PrecisionProfile
from tuner.reference_cache import ReferenceCache

VARLEN = get("attention_varlen")
BF16 = PrecisionProfile("bf16", "bf16", p="bf16", dot="16bit", tiles=4)
SHAPE = {"batch": 9, "heads": 4, "kv_heads": 2, "max_len": 41, "max_kv_len": 57, "head_dim": 32}
EDGES = {"lengths": "edges"}
CAUSAL = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])


def problem(dtype="bf16", *, causal=False, lengths="edges", scale=None, **changes):
    return VARLEN.problem({**SHAPE, **changes}, dtype, {"causal": causal, "lengths": lengths, "scale": scale})


def torch_varlen(inputs, scale, causal):
    """Out and log-sum-exp in float64, one sequence and head after the other."""
    q, k, v = (inputs[name].double() for name in ("q", "k", "v"))
    out = torch.zeros_like(q)
    lse = torch.full((q.shape[1], q.shape[0]), float("-inf"), dtype=torch.float64)
    at_q, at_kv = (inputs[name].tolist() for name in ("cu_seqlens_q", "cu_seqlens_kv"))
    for b in range(len(at_q) - 1):
        rows, keys = list(range(at_q[b], at_q[b + 1])), list(range(at_kv[b], at_kv[b + 1]))
        if not rows or not keys:
            continue
        seen = torch.tensor(
            [[not causal or j <= i + len(keys) - len(rows) for j in range(len(keys))] for i in range(len(rows))]
        )
        for h in range(q.shape[1]):
            kv_head = h * k.shape[1] // q.shape[1]
            s = (scale * q[rows, h] @ k[keys, kv_head].T).masked_fill(~seen, float("-inf"))
            out[rows, h] = torch.softmax(s, -1).masked_fill(~seen.any(1)[:, None], 0.0) @ v[keys, kv_head]
            # Of a logit of +inf torch makes a log-sum-exp of +inf; here it is NaN, as the row is.
            lse[h, rows] = torch.logsumexp(s, -1).masked_fill(s.isposinf().any(-1), float("nan"))
    return out, lse


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ("equal", [(8, 8)] * 4),
        ("uniform", [(6, 6), (2, 2), (8, 8), (4, 4)]),
        ("skewed", [(4, 4), (1, 1), (8, 8), (1, 1)]),
        ("edges", [(8, 8), (1, 4), (5, 0), (3, 3)]),
    ],
)
def test_lengths_follow_a_rule_that_is_written_down(lengths, expected):
    shape = {"batch": 4, "heads": 1, "max_len": 8, "head_dim": 16}
    assert list(queries_and_keys(VARLEN.problem(shape, "bf16", {"lengths": lengths}))) == expected


@pytest.mark.parametrize("lengths", ["uniform", "skewed"])
def test_spread_lengths_have_the_longest_once_and_are_in_no_order(lengths):
    found = queries_and_keys(problem(lengths=lengths, batch=64, max_len=1000, max_kv_len=3000))
    queries, keys = zip(*found, strict=True)
    assert max(queries) == 1000 and queries.count(1000) == 1 and min(queries) >= 1
    assert max(keys) == 3000 and keys.index(3000) == queries.index(1000)
    mean = sum(queries) / 64
    assert 490 < mean < 520 if lengths == "uniform" else 240 < mean < 265
    if lengths == "skewed":
        assert sorted(queries)[31] <= 125
    steps = [after > before for before, after in pairwise(queries)]
    assert 20 < sum(steps) < 44


def test_edges_bring_every_number_of_queries_together_with_every_number_of_keys():
    found = queries_and_keys(problem(batch=36, max_len=33, max_kv_len=129))
    assert {queries for queries, _ in found} == {33, 0, 1, 15, 16, 17}
    assert {keys for _, keys in found} == {129, 0, 1, 63, 64, 65}
    assert len(set(found)) == 36


def test_a_word_that_is_no_choice_is_refused_with_those_that_are():
    with pytest.raises(
        ProblemError, match="one of equal, uniform, skewed, edges, but got 'skewd'; did you mean skewed"
    ):
        VARLEN.problem(SHAPE, "bf16", {"lengths": "skewd"})
    with pytest.raises(ProblemError, match=r"lengths must be one of equal, uniform, skewed, edges, but got 3$"):
        VARLEN.problem(SHAPE, "bf16", {"lengths": 3})


@pytest.mark.parametrize(
    ("family", "causal"), [(family, True) for family in VARLEN.families(problem())] + [("needle", False)]
)
def test_the_reference_is_torchs(family, causal):
    at = problem(causal=causal)
    inputs = VARLEN.make_inputs(at, family, 3, "cpu")
    reference = VARLEN.reference(at, inputs, BF16).outputs
    out, lse = torch_varlen(inputs, 32**-0.5, causal)
    torch.testing.assert_close(reference["out"].expected, out, rtol=1e-7, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(reference["lse"].expected, lse, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert reference["out"].has_nan == (family == "nonfinite")
    if family == "nonfinite":
        assert bool(out.isnan().any()) and bool(out.isfinite().any())


@CAUSAL
def test_a_query_without_a_key_is_exact(causal):
    at = problem(causal=causal)
    inputs = VARLEN.make_inputs(at, "randn", 0, "cpu")
    outputs = VARLEN.reference(at, inputs, BF16).outputs
    lengths = queries_and_keys(at)
    assert (21, 0) in lengths and (20, 1) in lengths
    blind = [torch.arange(q) < (max(0, q - k) if causal or not k else 0) for q, k in lengths]
    dead = torch.cat(blind)
    assert int(dead.sum()) == sum(max(0, q - k) if causal or not k else 0 for q, k in lengths) > 20
    for name, empty in (("out", 0.0), ("lse", -torch.inf)):
        rows = (dead,) if name == "out" else (slice(None), dead)
        assert bool((outputs[name].expected[rows] == empty).all()) and bool((outputs[name].bound[rows] == 0).all())
    assert bool(outputs["lse"].expected[:, ~dead].isfinite().all())


@CAUSAL
def test_a_selection_of_a_large_problem_is_the_whole_of_it_there(monkeypatch, causal):
    at = problem(causal=causal, batch=14)
    inputs = VARLEN.make_inputs(at, "randn", 0, "cpu")
    whole = VARLEN.reference(at, inputs, BF16).outputs
    monkeypatch.setattr(varlen_bound, "WHOLE", 1)
    monkeypatch.setattr(varlen_bound, "_SEQUENCES_SELECTED", 4)
    part = VARLEN.reference(at, inputs, BF16).outputs
    for name in ("out", "lse"):
        index = part[name].index
        torch.testing.assert_close(part[name].expected, whole[name].expected[index])
        torch.testing.assert_close(part[name].bound, whole[name].bound[index])
    token, head = part["out"].index
    ends = inputs["cu_seqlens_q"].tolist()
    looked_at = {b for b in range(14) for t in token.tolist() if ends[b] <= t < ends[b + 1]}
    # Of twelve with queries four, the first and the last among them; the first is the largest too.
    assert len(looked_at) == 4 and {0, 13} <= looked_at and set(head.tolist()) == {0, 1, 2, 3}


def test_rows_of_short_sequences_count_with_their_bound_in_the_rms_check():
    at = problem(lengths="uniform", batch=3, max_len=8, max_kv_len=600)
    inputs = VARLEN.make_inputs(at, "randn", 0, "cpu")
    out = VARLEN.reference(at, inputs, BF16).outputs["out"]
    ends = inputs["cu_seqlens_q"].tolist()
    for b, (_, keys) in enumerate(queries_and_keys(at)):
        rows = slice(ends[b], ends[b + 1])
        assert bool((out.variance[rows] == out.bound[rows] ** 2).all()) == (keys == 200)
    short = problem(lengths="uniform", batch=3, max_len=8, max_kv_len=255)
    inputs = VARLEN.make_inputs(short, "randn", 0, "cpu")
    assert VARLEN.reference(short, inputs, BF16).outputs["out"].variance is None


@CAUSAL
@pytest.mark.parametrize("family", ["randn", "nonfinite"])
def test_attention_of_varied_inputs_is_the_varied_attention(family, causal):
    at = problem(causal=causal, batch=4, max_len=12, max_kv_len=40)
    inputs = VARLEN.make_inputs(at, family, 0, "cpu")
    expected = dict(zip(("out", "lse"), torch_varlen(inputs, 0.25, causal), strict=True))
    moved = set()
    for seed in range(4):
        variation = VARLEN.variation(at, "cpu", seed)
        given = {name: torch.empty_like(tensor) for name, tensor in inputs.items()}
        variation.apply(inputs, given)
        moved.add(float(given["v"].float().nan_to_num(0.0, 0.0, 0.0)[0, 0, 0]))
        got = dict(zip(("out", "lse"), torch_varlen(given, 0.25, causal), strict=True))
        for name, want in expected.items():
            back = torch.empty_like(want)
            variation.undo(name, got[name], back)
            torch.testing.assert_close(back, want, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert len(moved) > 1


@CAUSAL
def test_the_invariant_holds_for_right_outputs_and_not_where_one_is_off(causal):
    at = problem(causal=causal)
    inputs = VARLEN.make_inputs(at, "randn", 0, "cpu")
    invariant = VARLEN.invariant(at, inputs, BF16)
    out, _ = torch_varlen({**inputs, **invariant.inputs}, 32**-0.5, causal)
    right = out.to(torch.bfloat16)
    assert float(invariant.excess({"out": right})) < 1.0
    dead = int((right[:, 0, 0] == 0).nonzero()[0])
    for token, value in ((3, 1.05), (dead, 1e-6)):
        wrong = right.clone()
        wrong[token, 3, 7] = value
        assert float(invariant.excess({"out": wrong})) > 1.0


@CAUSAL
def test_the_inputs_show_every_classical_error(causal):
    tuned = problem(causal=causal, lengths="skewed", batch=20, max_len=300, max_kv_len=300, head_dim=16)
    tiles = {"max_len": 16, "max_kv_len": 32}
    checks = plan(VARLEN, tuned, tiles, {}, replace(BF16, tiles=10), full_size=False)
    errors = VARLEN.classical_errors(checks.checks[0].problem, tiles)
    assert {ONE_TOO_LONG, ONE_TOKEN_ON, LONGEST_FOR_ALL, LSE_OF_THE_QUERY_BEFORE, "acc not rescaled"} <= {*errors}
    assert ("mask aligned at the top left" in errors) == causal
    assert hidden_errors(VARLEN, checks, "cpu", 0, ReferenceCache()) == ()


@CAUSAL
def test_a_right_answer_is_no_error(causal):
    """What the errors are planted in is right: each is seen for itself."""
    at = problem(causal=causal)
    inputs = VARLEN.make_inputs(at, "randn", 0, "cpu")
    reference = VARLEN.reference(at, inputs, BF16).outputs
    for name, (place, got) in VARLEN.wrong_answer(at, inputs, "none of them", {"max_kv_len": 16}).items():
        torch.testing.assert_close(got, reference[name].expected[place])
        assert got.shape[0] == 41


@pytest.mark.parametrize("same_binary", [True, False])
@pytest.mark.parametrize(
    ("max_len", "max_kv_len", "batch", "tiles"),
    [(8192, 8192, 64, (128, 64)), (1001, 1001, 200, (64, 32)), (130, 4097, 1, (32, 128)), (1, 48, 33, (16, 16))],
)
def test_small_problems_have_tiles_and_lengths_to_go_wrong_on_and_keep_their_classes(
    max_len, max_kv_len, batch, tiles, same_binary
):
    shape = {"batch": batch, "heads": 32, "kv_heads": 8, "max_len": max_len, "max_kv_len": max_kv_len, "head_dim": 64}
    tuned = VARLEN.problem(shape, "fp16", {"lengths": "uniform"})
    q_tile, kv_tile = tiles
    small = VARLEN.check_problems(tuned, {"max_len": q_tile, "max_kv_len": kv_tile}, {}, same_binary=same_binary)
    for at in small:
        for axis in ("max_len", "max_kv_len", "heads", "kv_heads") if same_binary else ():
            assert integer_class(at.sizes[axis]) == integer_class(shape[axis]), (at.label, axis)
    assert small[0].settings["lengths"] == "edges" and small[1].settings["lengths"] == "uniform"
    queries, keys = ({pair[side] for pair in queries_and_keys(small[0])} for side in (0, 1))
    assert {0, 1} < keys and {2 * kv_tile - 1, 2 * kv_tile, 2 * kv_tile + 1} < keys
    assert max_len == 1 or not {0, 1, q_tile - 1, q_tile, q_tile + 1} - queries
    assert max(at.sizes["max_kv_len"] for at in small) >= 7 * kv_tile
    assert max_len == 1 or max(at.sizes["max_len"] for at in small) > 3 * q_tile
    assert (
        max(at.sizes["batch"] for at in small) > (128 if batch > 150 and same_binary else 1 if batch == 1 else 32) - 1
    )
    assert any(at.sizes["kv_heads"] > 1 for at in small)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_heads": 3}, "kv_heads must divide heads, but got heads=4 kv_heads=3"),
        ({"head_dim": 24}, "head_dim must be a multiple of 16"),
        ({"batch": 65537}, "batch must be between 1 and 65536"),
        ({"batch": 65536, "max_len": 65536}, "batch times max_len must be at most 2147483647"),
    ],
)
def test_a_shape_that_means_nothing_is_refused(changes, message):
    with pytest.raises(ProblemError, match=message):
        VARLEN.problem({**SHAPE, **changes}, "bf16")


def test_figures_count_what_is_there():
    shape = {"batch": 4, "heads": 6, "kv_heads": 2, "max_len": 8, "head_dim": 64}
    full = VARLEN.problem(shape, "bf16", {"lengths": "uniform"})  # 6, 2, 8 and 4 tokens
    causal = VARLEN.problem(shape, "bf16", {"lengths": "uniform", "causal": True})
    assert VARLEN.exponentials(full) == VARLEN.effort(causal) == 6 * (36 + 4 + 64 + 16)
    assert VARLEN.exponentials(causal) == 6 * (21 + 3 + 36 + 10)
    assert VARLEN.flops(full) == 4.0 * 64 * VARLEN.exponentials(full)
    assert VARLEN.bytes_moved(full) == 2 * 2 * 20 * (6 + 2) * 64 + 4 * 20 * 6 + 4 * 2 * 5
    specs = VARLEN.output_specs(full)
    assert specs["out"].shape == (20, 6, 64) and specs["lse"].shape == (6, 20)
    assert VARLEN.scalars(full) == {"scale": 0.125, "max_len": 8}


def test_timing_takes_the_lengths_of_the_problem_and_needs_no_storage():
    at = problem(lengths="skewed")
    inputs = VARLEN.timing_inputs(at, 0, "meta")
    total = sum(queries for queries, _ in queries_and_keys(at))
    assert inputs["q"].shape == (total, 4, 32) and inputs["cu_seqlens_q"].shape == (10,)
    ends = VARLEN.timing_inputs(at, 0, "cpu")["cu_seqlens_kv"]
    assert ends.dtype == torch.int32 and ends.diff().tolist() == [keys for _, keys in queries_and_keys(at)]


def test_a_kernel_file_has_its_blocks_taken_for_tiles_and_is_given_max_len(tmp_path):
    path = tmp_path / "own.py"
    given = "q, k, v, cu_seqlens_q, cu_seqlens_kv, out, lse, *, scale, max_len, BLOCK_M=64, BLOCK_N=32"
    path.write_text(f"def launch({given}):\n    pass\n")
    candidate, guessed = read_own_kernel(path).candidate(problem(), "BLOCK_M=16,BLOCK_N=32", "", "")
    assert candidate.tiles == {"max_len": 16, "max_kv_len": 32} and "BLOCK_N" in guessed
    assert candidate.profile.p == "bf16" and candidate.profile.dot == "16bit"
    path.write_text("def launch(q, k, v, cu_seqlens_q, out, lse, *, scale, max_len):\n    pass\n")
    with pytest.raises(UsageError, match="launch\\(\\) has no cu_seqlens_kv"):
        read_own_kernel(path).candidate(problem(), "", "", "")


OWN = """import torch

CONFIG = {"BLOCK": 64}


def launch(q, k, v, cu_seqlens_q, cu_seqlens_kv, out, lse, *, scale, max_len, BLOCK):
    at_q, at_kv = cu_seqlens_q.tolist(), cu_seqlens_kv.tolist()
    for b in range(len(at_q) - 1):
        mine, theirs = slice(at_q[b], at_q[b + 1]), slice(at_kv[b], at_kv[b + 1] + MORE)
        n, m = mine.stop - mine.start, at_kv[b + 1] - at_kv[b]
        keys, values = (t[theirs].float().repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        s = scale * torch.einsum("qhd,khd->hqk", q[mine].float(), keys)
        unseen = torch.arange(s.shape[2]) > torch.arange(n)[:, None] + m - n
        s = s.masked_fill(unseen, float("-inf")) if CAUSAL else s
        lse[:, mine] = s.logsumexp(-1)
        p = torch.softmax(s, -1).nan_to_num(0.0)
        out[mine] = torch.einsum("hqk,khd->qhd", p, values).to(out.dtype)


"""


@pytest.mark.parametrize(("causal", "more", "status", "word"), [(True, 0, 0, "OK"), (False, 1, 1, "WRONG")])
def test_the_self_check_of_a_file_tells_right_from_wrong(tmp_path, causal, more, status, word):
    path = tmp_path / "standalone.py"
    text = OWN.replace("MORE", str(more)).replace("CAUSAL", str(causal))
    path.write_text(text + VARLEN.self_check(problem("fp16", causal=causal)))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == status, done.stderr
    assert f": {word}" in done.stdout and "7 of 148 queries and 187 keys, 4 heads of 32" in done.stdout


@pytest.mark.parametrize(("batch", "sequences"), [(1, [1, 1]), (12, [1, 12]), (64, [1, 64, 20]), (1000, [1, 168, 20])])
def test_what_stands_in_for_the_tuned_shape_has_its_remainders_and_its_many_sequences(batch, sequences):
    shape = {"batch": batch, "heads": 32, "kv_heads": 8, "max_len": 1001, "max_kv_len": 4099, "head_dim": 64}
    tuned = VARLEN.problem(shape, "fp16", {"lengths": "uniform", "causal": True})
    found = VARLEN.stand_ins(tuned, {"max_len": 64, "max_kv_len": 32}, {})
    assert [at.sizes["batch"] for at in found] == sequences
    assert (found[0].sizes["max_len"], found[0].sizes["max_kv_len"]) == (64 + 1001 % 64, 64 * 32 + 4099 % 32)
    assert (found[-1].sizes["heads"], found[-1].sizes["kv_heads"]) == (8, 4)
    assert all(at.settings == tuned.settings for at in found)
