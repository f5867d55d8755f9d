"""What a problem may be, and what the operators say about it."""

from __future__ import annotations

import pytest

from tuner.errors import ProblemError
from tuner.operators import get, names

ATTENTION = {"batch": 2, "heads": 8, "q_len": 100, "head_dim": 64}


def test_the_operators_are_known_by_name():
    assert set(names()) >= {"softmax", "attention_fwd", "attention_bwd", "attention_decode"}


def test_an_unknown_operator_gets_its_close_match():
    with pytest.raises(ProblemError, match="did you mean softmax"):
        get("sofmax")


def test_defaults_follow_the_parameters_that_they_name():
    problem = get("attention_fwd").problem(ATTENTION, "bf16")
    assert problem.sizes == {"batch": 2, "heads": 8, "kv_heads": 8, "q_len": 100, "kv_len": 100, "head_dim": 64}
    assert problem.settings == {"causal": False, "allow_tf32": False, "scale": None}
    assert get("softmax").problem({"rows": 3, "cols": 5}, "fp16").sizes == {"rows": 3, "cols": 5, "row_stride": 5}


def test_equal_problems_are_equal_however_they_are_written():
    attention = get("attention_fwd")
    short = attention.problem(ATTENTION, "bfloat16", {"causal": True})
    full = attention.problem(
        dict(reversed([*ATTENTION.items(), ("kv_heads", 8), ("kv_len", 100)])), "bf16", {"causal": True}
    )
    assert short == full and short.key == full.key


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"rows": 3}, "softmax needs cols"),
        ({"rows": 3, "columns": 5}, "did you mean cols"),
        ({"rows": 0, "cols": 5}, "rows must be between 1 and 2147483647, but got 0"),
        ({"rows": 2.5, "cols": 5}, "rows must be a whole number"),
        ({"rows": True, "cols": 5}, "rows must be a whole number"),
        ({"rows": 3, "cols": 5, "row_stride": 4}, "row_stride must be at least cols, but got 4 < 5"),
        ({"rows": 2**31 - 1, "cols": 2**31 - 1}, "must be at most"),
    ],
)
def test_a_softmax_shape_that_means_nothing_is_refused(shape, message):
    with pytest.raises(ProblemError, match=message):
        get("softmax").problem(shape, "bf16")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_heads": 3}, "kv_heads must divide heads, but got heads=8 kv_heads=3"),
        ({"head_dim": 20}, "multiple of 8"),
        ({"head_dim": 264}, "between 16 and 256"),
    ],
)
def test_an_attention_shape_that_means_nothing_is_refused(changes, message):
    with pytest.raises(ProblemError, match=message):
        get("attention_fwd").problem({**ATTENTION, **changes}, "bf16")


def test_a_missing_size_is_asked_for_with_a_usual_one():
    with pytest.raises(ProblemError) as caught:
        get("softmax_topk").problem({"rows": 8, "cols": 64}, "bf16")
    assert str(caught.value) == "softmax_topk needs k: give it in the shape, such as k=8"
    with pytest.raises(ProblemError) as caught:
        get("attention_decode").problem({"batch": 2, "heads": 8}, "bf16")
    said = "attention_decode needs kv_len, head_dim: give them in the shape, such as kv_len=32768,head_dim=128"
    assert str(caught.value) == said


@pytest.mark.parametrize("name", names(shipped=True))
def test_the_sizes_that_are_proposed_are_a_problem(name):
    with pytest.raises(ProblemError, match=f"^{name} needs ") as caught:
        get(name).problem({}, "bf16")
    pairs = str(caught.value).partition("such as ")[2].split(",")
    get(name).problem({key: int(value) for key, value in (pair.split("=") for pair in pairs)}, "bf16")


@pytest.mark.parametrize(
    ("dtype", "options", "message"),
    [
        ("fp61", {}, "dtype must be one of bf16, fp16, fp32, fp8, but got 'fp61'; did you mean fp16"),
        ("bf16", {"casual": True}, "no option 'casual'; did you mean causal"),
        ("bf16", {"causal": 1}, "causal must be true or false"),
        ("bf16", {"scale": -1.0}, "positive and finite, but got -1.0; leave it out for its default"),
        ("bf16", {"scale": 0}, "scale must be positive and finite, but got 0.0; leave it out for its default"),
        ("bf16", {"scale": float("nan")}, "scale must be positive and finite, but got nan; leave it out"),
        ("bf16", {"scale": float("inf")}, "scale must be positive and finite, but got inf; leave it out"),
        ("bf16", {"scale": -(10**5000)}, "scale must be positive and finite, but got -inf; leave it out"),
    ],
)
def test_a_wrong_dtype_or_option_is_refused(dtype, options, message):
    with pytest.raises(ProblemError, match=message):
        get("attention_fwd").problem(ATTENTION, dtype, options)


def test_figures_of_full_attention():
    problem = get("attention_fwd").problem(
        {"batch": 4, "heads": 32, "kv_heads": 8, "q_len": 4096, "head_dim": 128}, "bf16"
    )
    # 4 * 4 * 32 * 4096^2 * 128; q and out once, k and v once (2 bytes), lse once (4 bytes).
    assert get("attention_fwd").flops(problem) == 1099511627776.0
    assert get("attention_fwd").bytes_moved(problem) == 2 * (2 * 67108864 + 2 * 16777216) + 4 * 524288
    assert get("attention_fwd").exponentials(problem) == 4 * 32 * 4096**2


@pytest.mark.parametrize(("q_len", "kv_len", "pairs"), [(3, 3, 6), (2, 4, 7), (4, 2, 3), (1, 9, 9), (9, 1, 1)])
def test_causal_work_counts_visible_pairs_alone(q_len, kv_len, pairs):
    shape = {"batch": 1, "heads": 1, "q_len": q_len, "kv_len": kv_len, "head_dim": 16}
    problem = get("attention_fwd").problem(shape, "fp32", {"causal": True})
    assert get("attention_fwd").exponentials(problem) == pairs
    assert get("attention_fwd").flops(problem) == 4 * pairs * 16


def test_figures_of_softmax():
    problem = get("softmax").problem({"rows": 10, "cols": 7, "row_stride": 9}, "fp32")
    assert get("softmax").flops(problem) == 350.0
    assert get("softmax").bytes_moved(problem) == 2 * 70 * 4
    assert get("softmax").exponentials(problem) == 70.0


def test_the_scale_defaults_to_the_root_of_the_head_dimension():
    attention = get("attention_fwd")
    assert attention.scalars(attention.problem(ATTENTION, "bf16")) == {"scale": 0.125}
    assert attention.scalars(attention.problem(ATTENTION, "bf16", {"scale": 0.5})) == {"scale": 0.5}


def test_outputs_have_the_shapes_that_templates_write():
    attention, softmax = get("attention_fwd"), get("softmax")
    specs = attention.output_specs(attention.problem(ATTENTION, "bf16"))
    assert (specs["out"].shape, specs["out"].dtype) == ((2, 8, 100, 64), "bf16")
    assert (specs["lse"].shape, specs["lse"].dtype) == ((2, 8, 100), "fp32")
    strided = softmax.output_specs(softmax.problem({"rows": 3, "cols": 5, "row_stride": 8}, "fp16"))["out"]
    assert (strided.shape, strided.strides) == ((3, 5), (8, 1))
