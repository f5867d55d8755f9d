"""Kernels with one planted bug each, checked in Triton's interpreter.

Run as a script with TRITON_INTERPRET=1, prints one JSON object:
"operator/dtype/mutant" -> [passed, family, reason, ratio].
"""

import functools
import importlib.util
import json
import pathlib
import sys
import tempfile
import textwrap

HONEST = "honest"
FOLDER = pathlib.Path(__file__).parent

# The running maximum, sum and accumulator are carried from one work item of a persistent program to the next. (The
# accumulator alone would be an equivalent mutant: with m = -inf the first alpha is 0.)
_ATTENTION_STATE = """        m = tl.full([BLOCK_M], float("-inf"), tl.float32)
        l = tl.zeros([BLOCK_M], tl.float32)
        acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
"""
_DIMS = "    dims = tl.arange(0, BLOCK_D)\n"
_ATTENTION_STATE_OUTSIDE = _DIMS + textwrap.indent(textwrap.dedent(_ATTENTION_STATE), "    ")
_SOFTMAX_STATE = """        m = tl.full([1], float("-inf"), tl.float32)
        l = tl.zeros([1], tl.float32)
"""
_SOFTMAX_STATE_OUTSIDE = textwrap.indent(textwrap.dedent(_SOFTMAX_STATE), "    ") + "    for row in"
# What fp16 can hold, so that the sentinel is finite in every dtype.
SENTINEL = "-3.0e4"

# name -> replacements (old text, new text); each old text occurs in the kernel.
ATTENTION = {
    "acc_not_rescaled": [("acc = acc * alpha[:, None]", "acc = acc")],
    "l_not_rescaled": [("l = l * alpha", "l = l")],
    "alpha_in_base_e": [("alpha = tl.exp2(m - m_safe)", "alpha = tl.exp(m - m_safe)")],
    "weights_in_base_e": [("p = tl.exp2(s - m_safe[:, None])", "p = tl.exp(s - m_safe[:, None])")],
    "log2e_not_folded": [("(scale * LOG2E)", "scale")],
    "block_max_not_carried": [("m_new = tl.maximum(m, block_max)", "m_new = block_max")],
    "no_guard_on_empty_tile": [('m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)', "m_safe = m_new")],
    "masked_with_finite_sentinel": [
        ('s = tl.where(visible, s, float("-inf"))', "s = tl.where(visible, s, " + SENTINEL + ")")
    ],
    "stale_accumulator": [(_ATTENTION_STATE, ""), ("    dims = tl.arange(0, BLOCK_D)\n", _ATTENTION_STATE_OUTSIDE)],
    "m_starts_at_zero": [('m = tl.full([BLOCK_M], float("-inf"), tl.float32)', "m = tl.zeros([BLOCK_M], tl.float32)")],
    "phantom_keys": [
        (
            "visible = (cols[None, :] < kv_len) & (rows[:, None] < q_len)",
            "visible = rows[:, None] < q_len + cols[None, :] * 0",
        )
    ],
    "tail_dropped": [
        ("for start in range(0, kv_len, BLOCK_N):", "for start in range(0, kv_len // BLOCK_N * BLOCK_N, BLOCK_N):")
    ],
    "first_tile_skipped": [
        ("for start in range(0, kv_len, BLOCK_N):", "for start in range(BLOCK_N, kv_len, BLOCK_N):")
    ],
    # These need shapes of whole tiles, of many tiles, and of many query tiles.
    "last_tile_lost_where_keys_fill_it": [
        (
            "for start in range(0, kv_len, BLOCK_N):",
            "for start in range(0, (kv_len - 1) // BLOCK_N * BLOCK_N + (BLOCK_N if kv_len % BLOCK_N else 0), BLOCK_N):",
        )
    ],
    "lost_from_the_sixth_tile": [
        ("for start in range(0, kv_len, BLOCK_N):", "for start in range(0, min(kv_len, 5 * BLOCK_N), BLOCK_N):")
    ],
    "third_query_tile_lost": [
        (
            "visible = (cols[None, :] < kv_len) & (rows[:, None] < q_len)",
            "visible = (cols[None, :] < kv_len) & (rows[:, None] < 3 * BLOCK_M)",
        )
    ],
    "heads_by_modulo": [("kv_head = head // (heads // kv_heads)", "kv_head = head % kv_heads")],
    "lse_in_base_2": [("lse = m / LOG2E + tl.log(l_safe)", "lse = m + tl.log2(l_safe)")],
    "scale_of_another_head_dim": [("(scale * LOG2E)", "(scale * scale * LOG2E)")],
    "never_divided": [("out = acc / l_safe[:, None]", "out = acc")],
    "stores_past_the_end": [("lse, mask=rows < q_len)", "lse, mask=rows < q_len + 1)")],
    "last_row_not_stored": [("lse, mask=rows < q_len)", "lse, mask=rows < q_len - 1)")],
    "one_column_wrong_by_3_percent": [
        ("out = acc / l_safe[:, None]", "out = acc / l_safe[:, None] * tl.where(dims == 5, 1.03, 1.0)[None, :]")
    ],
}
CAUSAL = {
    "aligned_top_left": [("<= rows[:, None] + (kv_len - q_len)", "<= rows[:, None]")],
    "diagonal_lost": [("<= rows[:, None] + (kv_len - q_len)", "< rows[:, None] + (kv_len - q_len)")],
    "one_key_too_far": [("<= rows[:, None] + (kv_len - q_len)", "<= rows[:, None] + (kv_len - q_len) + 1")],
    "diagonal_partly_unmasked": [
        ("        if IS_CAUSAL:", "        if IS_CAUSAL and start >= first_row + (kv_len - q_len):")
    ],
    "dead_rows_divide_by_zero": [("l_safe = tl.where(l == 0.0, 1.0, l)", "l_safe = l")],
}
SOFTMAX = {
    "l_not_rescaled": [("l = l * alpha", "l = l")],
    "alpha_in_base_e": [("alpha = tl.exp2((m - m_safe) * LOG2E)", "alpha = tl.exp2(m - m_safe)")],
    "output_in_base_e": [("y = tl.exp2((x - m) * LOG2E) / l", "y = tl.exp2(x - m) / l")],
    "block_max_not_carried": [
        ("m_new = tl.maximum(m, tl.max(x, axis=0))", "m_new = tl.max(x, axis=0) + tl.zeros([1], tl.float32)")
    ],
    "no_guard_on_empty_tile": [('m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)', "m_safe = m_new")],
    "masked_with_finite_sentinel": [('other=float("-inf")', "other=" + SENTINEL)],
    "stale_accumulator": [(_SOFTMAX_STATE, ""), ("    for row in", _SOFTMAX_STATE_OUTSIDE)],
    "tail_loaded_as_zero": [('other=float("-inf")', "other=0.0")],
    "no_maximum": [("m_new = tl.maximum(m, tl.max(x, axis=0))", "m_new = tl.zeros([1], tl.float32)")],
    "stride_taken_for_columns": [("row * x_row_stride", "row * cols")],
    "writes_past_the_row": [
        ("y.to(out_ptr.dtype.element_ty), mask=mask)", "y.to(out_ptr.dtype.element_ty), mask=offsets < cols + 1)")
    ],
    "zeros": [("y = tl.exp2((x - m) * LOG2E) / l", "y = tl.exp2((x - m) * LOG2E) / l * 0.0")],
}
DTYPES = ("bf16", "fp16", "fp32")

# Every mutant is run in bf16, and these in every dtype.
CLASSICS = {
    "acc_not_rescaled",
    "l_not_rescaled",
    "alpha_in_base_e",
    "block_max_not_carried",
    "no_guard_on_empty_tile",
    "masked_with_finite_sentinel",
    "stale_accumulator",
}


def keys():
    """(kernel, dtype, mutant) of everything that ``main`` checks, the honest kernels included."""
    table = {
        # Without a mask no tile is empty, and a guard on an empty tile changes nothing.
        "attention": {n: r for n, r in ATTENTION.items() if n != "no_guard_on_empty_tile"},
        "attention_causal": {
            **CAUSAL,
            **{n: ATTENTION[n] for n in ("no_guard_on_empty_tile", "masked_with_finite_sentinel")},
        },
        "softmax": SOFTMAX,
    }
    return {
        (kernel, dtype, name): replacements
        for dtype in DTYPES
        for kernel, mutants in table.items()
        for name, replacements in {HONEST: [], **mutants}.items()
        if dtype == "bf16" or name == HONEST or name in CLASSICS
    }


def mutate(source, replacements):
    """The source with the bug; refuses replacements that no longer apply."""
    for old, new in replacements:
        if old not in source:
            raise ValueError(f"the kernel no longer contains {old!r}")
        source = source.replace(old, new)
    return source


def load(source, folder, name):
    """The module's ``launch``; Triton wants to read kernels from a file."""
    path = pathlib.Path(folder) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.launch


def main():
    from tuner.checking import ReferenceCache, check, plan
    from tuner.interpreter import repair_bf16_dot
    from tuner.operators import get
    from tuner.precision import PrecisionProfile

    repair_bf16_dot()
    attention, softmax, cache, results = get("attention_fwd"), get("softmax"), ReferenceCache(), {}
    with tempfile.TemporaryDirectory() as folder:

        def run(kernel, key, replacements, operator, problem, tiles, profile, **config):
            source = mutate((FOLDER / kernel).read_text(), replacements)
            launch = load(source, folder, key.replace("/", "_"))
            checks = plan(operator, problem, tiles, {}, profile, full_size=False)
            report = check(functools.partial(launch, **config), operator, checks, "cpu", 0, cache)
            last = report.families[-1]
            results[key] = [report.passed, last.family, report.reason, report.worst_ratio]

        for (kernel, dtype, name), replacements in keys().items():
            key = f"{kernel}/{dtype}/{name}"
            if kernel == "softmax":
                problem = softmax.problem({"rows": 100, "cols": 1000, "row_stride": 1100}, dtype)
                profile = PrecisionProfile(dtype, dtype, tiles=16)
                config = {"BLOCK_COLS": 64, "PROGRAMS": 2}
                run("softmax_plain.py", key, replacements, softmax, problem, {"cols": 64}, profile, **config)
                continue
            causal = kernel == "attention_causal"
            shape = {"batch": 2, "heads": 4, "kv_heads": 2, "q_len": 300, "kv_len": 300, "head_dim": 32}
            problem = attention.problem(shape, dtype, {"causal": causal})
            profile = PrecisionProfile(dtype, dtype, p=dtype, dot="ieee" if dtype == "fp32" else "16bit", tiles=19)
            config = {"IS_CAUSAL": causal, "BLOCK_M": 16, "BLOCK_N": 32 if causal else 16, "PROGRAMS": 1}
            tiles = {"q_len": config["BLOCK_M"], "kv_len": config["BLOCK_N"]}
            run("attention_plain.py", key, replacements, attention, problem, tiles, profile, **config)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
