"""Attention forward: ``out = softmax(scale * q k^T + mask) v``, and the logarithm of the softmax's denominator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tuner.errors import ProblemError
from tuner.numerics import ALL_DTYPES, FP8, output_dtype
from tuner.operators.attention_features import FEATURE_TENSORS, FEATURES, Features, small_features
from tuner.operators.base import LARGEST_TENSOR, Operator, Option, OutputSpec, ShapeParameter, itemsize
from tuner.operators.head_dims import value_dim
from tuner.precision import PrecisionProfile
from tuner.problem import Problem, Scalar

if TYPE_CHECKING:
    import torch

    from tuner.operators.invariants import Invariant
    from tuner.operators.reference import Reference
    from tuner.operators.variation import Variation

FAMILIES = (
    "randn",
    "rising",
    "falling_far",
    "needle",
    "very_negative",
    "negative",
    "coverage",
    "v_offset",
    "one_hot",
    "huge",
    "equal_max",
    "constant",
    "uniform",
    "tiny",
    "nonfinite",
)
EDGE, CAPPED = "edge", "capped"  # where there is a window, a softcap
SINKING, STEEP, HOLES = "sinking", "steep", "holes"  # where there are sinks, slopes, a bias
NONFINITE_KEYS = 32  # with fewer, a tile may hold nothing but a logit of -inf


OPTIONS = (
    Option("causal", "bool", False, "a query sees no later key (aligned at the bottom right)"),
    Option("allow_tf32", "bool", False, "products of fp32 inputs may be taken in tf32 (a class of its own)"),
    Option("scale", "float", None, "factor of q k^T; head_dim ** -0.5 where not given"),
)
"""What every attention over q, k and v of one head_dim has. ``FEATURES`` are those of the forward pass alone."""
SHAPE = (
    ShapeParameter("batch", "sequences in the batch"),
    ShapeParameter("heads", "query heads"),
    ShapeParameter("kv_heads", "key and value heads; divides heads", default="heads"),
    ShapeParameter("q_len", "queries per sequence"),
    ShapeParameter("kv_len", "keys per sequence", default="q_len"),
    ShapeParameter("head_dim", "elements per head", minimum=16, maximum=256, multiple_of=8),
)

_SCALES = ("q_scale", "k_scale", "v_scale")  # of fp8


def families_of(keys: int, families: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``families`` that so many keys suffice for."""
    return tuple(family for family in families if family != "nonfinite" or keys >= NONFINITE_KEYS)


class AttentionForward(Operator):
    """Scaled dot-product attention with grouped key/value heads.

    Values, and so the outputs, have ``v_head_dim`` elements, which are ``head_dim`` where nothing else is said. Query
    head h attends to key/value head ``h // (heads // kv_heads)``. Masks are aligned at the bottom right: the place of
    query i is key ``i + kv_len - q_len``. Where causal it sees no later key, with ``window_left`` and ``window_right``
    at most so many keys before and after its place. With ``softcap`` a logit is softcap tanh(scale q k^T / softcap),
    also where the product is infinite. With ``alibi`` it then loses ``slopes[h] * |place - key|``, and with ``bias``
    gains ``bias[batch or 0, head or 0, query, key]`` (finite or -inf, which takes the key away). With ``sinks`` a query
    of head h has one logit more, ``sinks[h]`` (finite or -inf), which has no value: it is part of the denominator and
    of the log-sum-exp. A query that sees no key gives 0 and a log-sum-exp of -inf, or of its sink.
    With ``dropout`` each weight is 0 with that chance where it meets its value, and else divided by 1 - dropout; which
    stay, a function of ``dropout_seed`` (int64 [1]) and of a weight's own place says (``operators.dropout``). The
    denominator and the log-sum-exp are of all weights.
    Of fp8, q, k and v are in e4m3, each multiplied by its scale (``q_scale``, ``k_scale``, ``v_scale``: fp32 [1]), and
    the output and a bias are in bf16.
    A NaN or a logit of +inf that a query sees makes its row NaN; a logit of -inf takes its key away; keys that a query
    does not see do nothing to it. What a v that is not finite does to a query that does not see it is not defined.
    """

    name = "attention_fwd"
    summary = "attention forward: output and log-sum-exp, grouped heads, causal or full"
    shape_parameters: tuple[ShapeParameter, ...] = (
        *SHAPE,
        ShapeParameter("v_head_dim", "elements per value", "head_dim", 16, 256, multiple_of=8, late=True),
    )
    options: tuple[Option, ...] = (*OPTIONS, *FEATURES)
    # Whether there is nothing but what OPTIONS and SHAPE say, in a dtype without scales.
    derived_names = ("plain_attention",)
    dtypes: tuple[str, ...] = ALL_DTYPES
    reduced_axis = "kv_len"
    tensor_names: tuple[str, ...] = ("q", "k", "v", *_SCALES, *FEATURE_TENSORS, "out", "lse")
    full_size_families = ("randn", "needle")
    further_families: tuple[str, ...] = ("randn", "needle", EDGE, CAPPED, SINKING, STEEP, HOLES)
    generic_families = ("randn", "uniform")
    example_shape: ClassVar[Mapping[str, int]] = {"batch": 4, "heads": 32, "q_len": 4096, "head_dim": 128}

    def _validate(self, sizes: Mapping[str, int]) -> None:
        if sizes["heads"] % sizes["kv_heads"]:
            given = f"heads={sizes['heads']} kv_heads={sizes['kv_heads']}"
            raise ProblemError(f"{self.name}: kv_heads must divide heads, but got {given}")
        per_token = sizes["batch"] * sizes["heads"] * max(sizes["head_dim"], value_dim(sizes))
        if per_token * max(sizes["q_len"], sizes["kv_len"]) > LARGEST_TENSOR:
            raise ProblemError(f"{self.name}: a tensor must have at most {LARGEST_TENSOR} elements")

    def _settings(self, options: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
        """A causal attention has no window to the right, and one with no key there is causal."""
        settings = super()._settings(options)
        given = dict(settings)
        if not given.get("causal") and given.get("window_right") != 0:
            return settings
        return tuple((n, True if n == "causal" else value) for n, value in settings if n != "window_right")

    def facts(self, problem: Problem) -> dict[str, Scalar]:
        """With ``plain_attention``."""
        more = (*(f.name for f in FEATURES), "v_head_dim")
        plain = (problem.settings.keys() | problem.sizes).isdisjoint(more) and problem.dtype != FP8
        return {**super().facts(problem), "plain_attention": plain}

    def flops(self, problem: Problem) -> float:
        """Products of 2 * head_dim and 2 * v_head_dim operations for every visible pair of query and key."""
        return 2.0 * self._pairs(problem) * (problem.sizes["head_dim"] + value_dim(problem.sizes))

    def bytes_moved(self, problem: Problem) -> int:
        """As of any operator; of keys and values those that a query of a window sees, of a bias the visible pairs."""
        s = problem.sizes
        queries = s["batch"] * s["heads"] * s["q_len"]
        seen = Features.of(problem.settings).keys(s["q_len"], s["kv_len"])
        keys = s["batch"] * s["kv_heads"] * seen
        features, numbers = Features.of(problem.settings), queries * itemsize("fp32")
        numbers += s["heads"] * (features.sinks + features.alibi) * itemsize("fp32")
        numbers += 8 if features.dropout is not None else 0  # the seed
        if "bias" in features.tensors:
            batch, heads, *_ = features.bias_shape(s)
            numbers += batch * heads * features.pairs(s["q_len"], s["kv_len"]) * itemsize(output_dtype(problem.dtype))
        numbers += len(_SCALES) * itemsize("fp32") if problem.dtype == FP8 else 0
        out = queries * value_dim(s)
        given = queries * s["head_dim"] + keys * (s["head_dim"] + value_dim(s))
        return given * itemsize(problem.dtype) + out * itemsize(output_dtype(problem.dtype)) + numbers

    def exponentials(self, problem: Problem) -> float:
        """One for every visible pair of query and key, and one more for its softcap; one for every sink of a query."""
        features, s = Features.of(problem.settings), problem.sizes
        of_sinks = s["batch"] * s["heads"] * s["q_len"] if features.sinks else 0
        return self._pairs(problem) * (1 if features.softcap is None else 2) + of_sinks

    def _pairs(self, problem: Problem) -> float:
        """Visible pairs of query and key."""
        s = problem.sizes
        return float(s["batch"] * s["heads"] * Features.of(problem.settings).pairs(s["q_len"], s["kv_len"]))

    def families(self, problem: Problem) -> tuple[str, ...]:
        features = Features.of(problem.settings)
        asked = {EDGE: features.windowed, CAPPED: features.softcap, SINKING: features.sinks, STEEP: features.alibi}
        asked[HOLES] = "bias" in features.tensors
        families = (*FAMILIES, *(family for family, there in asked.items() if there))
        return families_of(problem.sizes["kv_len"], families)

    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.attention_inputs import make

        return make(problem, family, seed, device, self.scalars(problem)["scale"])

    def timing_inputs(self, problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.operators.attention_inputs import normal

        return normal(problem, seed, device)

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        s, dtype = problem.sizes, output_dtype(problem.dtype)
        rows = (s["batch"], s["heads"], s["q_len"])
        return {"out": OutputSpec((*rows, value_dim(s)), dtype), "lse": OutputSpec(rows, "fp32")}

    def launch_tensors(self, problem: Problem) -> tuple[str, ...]:
        """Of the features' tensors those that the problem has, and scales where it is of fp8."""
        there = (*Features.of(problem.settings).tensors, *(_SCALES if problem.dtype == FP8 else ()))
        return tuple(n for n in self.tensor_names if n not in (*FEATURE_TENSORS, *_SCALES) or n in there)

    def scalars(self, problem: Problem) -> dict[str, float]:
        """``scale``, and the numbers of the features that the problem has."""
        scale = problem.settings["scale"]
        found = {"scale": float(scale) if scale is not None else problem.sizes["head_dim"] ** -0.5}
        return {**found, **Features.of(problem.settings).scalars(bool(problem.settings.get("causal", True)))}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        from tuner.operators.attention_bound import reference
        from tuner.operators.quantisation import exact

        causal, features = bool(problem.settings["causal"]), Features.of(problem.settings)
        q, k, v, scale = exact(inputs, self.scalars(problem)["scale"])
        return reference(q, k, v, scale, causal, profile, features=features, more=inputs)

    def variation(self, problem: Problem, device: str, seed: int) -> Variation:
        """Sequences and groups of heads change places, and signs change along head_dim.

        With dropout signs alone: which weights stay depends on their places.
        """
        from tuner.operators.tensors import TORCH_DTYPES
        from tuner.operators.variation import Variation, of_heads

        heads = of_heads(problem.sizes, TORCH_DTYPES[problem.dtype], device, seed)
        features = Features.of(problem.settings)
        if features.dropout is not None:
            return Variation({}, heads.signs)
        vectors = [name for name in features.tensors if name != "bias"]
        return heads.with_heads(
            vectors, {"bias": features.bias_shape(problem.sizes)[:2]} if features.bias != "none" else {}
        )

    def strides(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """Every tensor of heads as a view of a layout of its own; the log-sum-exp stays as it is."""
        from tuner.operators.layouts import own_strides

        s = problem.sizes
        queries, keys = (s["batch"], s["heads"], s["q_len"]), (s["batch"], s["kv_heads"], s["kv_len"])
        of_queries, of_keys = (*queries, s["head_dim"]), (*keys, s["head_dim"])
        shapes = {"q": of_queries, "k": of_keys, "v": (*keys, value_dim(s)), "out": (*queries, value_dim(s))}
        features = Features.of(problem.settings)
        if "bias" in features.tensors and s["kv_len"] > 1:
            shapes["bias"] = features.bias_shape(s)
        return own_strides(shapes)

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        from tuner.operators.attention_logits import added_error, cap_error
        from tuner.operators.invariants import ones_give_ones
        from tuner.operators.quantisation import exact

        s = problem.sizes
        features = Features.of(problem.settings)
        if features.dropout is not None:
            return None  # a row's kept weights have no known sum
        dead = features.dead(s["q_len"], s["kv_len"])
        logit_error = 0.0 if features.softcap is None else cap_error(features.softcap, profile)
        if features.alibi:
            logit_error += added_error(float(inputs["slopes"].abs().amax()) * max(s["q_len"], s["kv_len"]))
        if "bias" in features.tensors:
            logit_error += added_error(float(inputs["bias"].abs().amax()))
        q, k, v, scale = exact(inputs, self.scalars(problem)["scale"])
        more = {name: inputs[name] for name in features.tensors}
        if problem.dtype == FP8:
            more["v_scale"] = inputs["v_scale"].new_ones(1)
        return ones_give_ones(q, k, v, scale, dead, profile, s["kv_len"], logit_error, more)

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.operators.attention_errors import errors
        from tuner.operators.quantisation import ERRORS

        causal, features = bool(problem.settings["causal"]), Features.of(problem.settings)
        found = errors(problem.sizes, causal, tiles.get("kv_len", problem.sizes["kv_len"]), features)
        return (*found, *(ERRORS if problem.dtype == FP8 else ()))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.operators.attention_errors import answer
        from tuner.operators.quantisation import exact

        causal = bool(problem.settings["causal"])
        q, k, v, scale = exact(inputs, self.scalars(problem)["scale"], error)
        tile = tiles.get("kv_len", problem.sizes["kv_len"])
        features = Features.of(problem.settings)
        out, lse = answer(q, k, v, scale, causal, error, tile, features, inputs)
        return {"out": ((0, 0), out), "lse": ((0, 0), lse)}

    def check_problems(
        self,
        problem: Problem,
        tiles: Mapping[str, int],
        max_tiles: Mapping[str, int],
        *,
        same_binary: bool = True,
    ) -> tuple[Problem, ...]:
        from tuner.operators.small_problems import attention_problems

        features = Features.of(problem.settings)
        masked = bool(problem.settings["causal"]) or features.windowed
        shapes = attention_problems(problem.sizes, masked, tiles, max_tiles, same_binary)
        return tuple(
            self.problem(shape, problem.dtype, small_features(problem.settings, shape, tiles, place, same_binary))
            for place, shape in enumerate(shapes)
        )

    def stand_ins(
        self, problem: Problem, tiles: Mapping[str, int], max_tiles: Mapping[str, int]
    ) -> tuple[Problem, ...]:
        from tuner.operators.stand_ins import attention_stand_ins

        shapes = attention_stand_ins(problem.sizes, tiles)
        return tuple(self.problem(shape, problem.dtype, problem.settings) for shape in shapes)

    def self_check(self, problem: Problem) -> str:
        from tuner.operators.self_checks import attention_self_check

        return attention_self_check(problem, self.scalars(problem)["scale"])


def visible_pairs(q_len: int, kv_len: int) -> int:
    """Pairs (query i, key j) with ``j <= i + kv_len - q_len``: query i sees ``max(0, i + 1 + kv_len - q_len)`` keys."""
    seeing = min(q_len, kv_len)
    last, first = kv_len, kv_len - seeing + 1
    return seeing * (first + last) // 2
