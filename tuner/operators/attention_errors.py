"""Classical wrong answers of attention, in float64, on which the check's inputs must prove themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from tuner.operators.attention_features import NONE, Features
from tuner.operators.dropout import kept
from tuner.operators.online_errors import ACC_NOT_RESCALED, MAXIMUM_NOT_CARRIED, OF_TILES, WRONG_BASE, online

SCALE_TOO_LARGE, SCALE_TOO_SMALL = "scale 1 + 2^-6", "scale 1 - 2^-6"
LAST_KEY_LOST, PHANTOM_KEY = "the last key lost", "a key too many"
DIAGONAL_LOST, ONE_TOO_FAR, TOP_LEFT = "mask one key short", "mask one key too far", "mask aligned at the top left"
LEFT_SHORT, LEFT_LONG = "a window one key short at its left", "a window one key long at its left"
RIGHT_SHORT, RIGHT_LONG = "a window one key short at its right", "a window one key long at its right"
NO_LEFT, NO_RIGHT = "a window without a left end", "a window without a right end"
NO_CAP, CAP_OF_HALF, CAP_IN_BASE_2 = "no softcap", "tanh of half the logit", "softcap of logits in base 2"
NO_SINK, SINK_IN_BASE_2, SINK_TWICE, OTHER_SINK = "no sink", "a sink in base 2", "a sink twice", "another head's sink"
NO_SLOPE, SLOPE_UPWARDS, SLOPE_IN_BASE_2 = "no slope", "slopes upwards", "slopes in base 2"
NO_BIAS, BIAS_IN_BASE_2, BIAS_OF_NEXT_ROW = "no bias", "a bias in base 2", "the bias of the query before"
BIAS_SCALED, OTHER_BIAS = "a bias that is scaled", "another head's bias"
NO_DROPOUT, UNSCALED_DROPOUT, DROPPED_FROM_SUM = "no dropout", "kept weights not scaled", "dropped weights not summed"
KEPT_DROPPED, OTHER_MASK = "kept weights dropped", "another head's dropout"
MASK_OF_TILE, MASK_OF_NEXT_ROW = "dropout counted in each tile", "the dropout of the query before"
SLOPE_TOP_LEFT, OTHER_SLOPE = "slopes from the top left", "another head's slope"
ZEROS, MEAN_OF_V, NEIGHBOURS_ROW, NEIGHBOURS_HEAD = "zeros", "the mean of v", "the query before", "another head's keys"
_TELLING_CAP, _OVERFLOWING_CAP = 1.0e4, 60.0
_SCALES = {SCALE_TOO_LARGE: 1.0 + 2.0**-6, SCALE_TOO_SMALL: 1.0 - 2.0**-6}


def errors(sizes: dict[str, int], causal: bool, tile: int, features: Features = NONE) -> tuple[str, ...]:
    """The errors that change anything at all on a problem of this shape with tiles of ``tile`` keys."""
    q_len, kv_len = sizes["q_len"], sizes["kv_len"]
    found = [ZEROS, *_SCALES, PHANTOM_KEY]
    if kv_len > 1:
        found += [LAST_KEY_LOST, MEAN_OF_V]
        found += [WRONG_BASE] if features.widest(kv_len) > 1 else []
    if q_len > 1 and kv_len > 1:
        found.append(NEIGHBOURS_ROW)
    if sizes["kv_heads"] > 1:
        found.append(NEIGHBOURS_HEAD)
    if features.crosses(q_len, kv_len, tile):
        found += (*OF_TILES, ACC_NOT_RESCALED)
    if causal:
        found.append(DIAGONAL_LOST)
        if q_len > 1 and kv_len > 1:
            found.append(ONE_TOO_FAR)
    ends = [end for end in (features.left, 0 if causal else features.right) if end is not None]
    if q_len != kv_len and kv_len > 1 and any(end < max(q_len, kv_len) - 1 for end in ends):
        found.append(TOP_LEFT)
    if features.softcap is not None:
        # Far below a cap its tanh is the logit itself, and alpha of a falling maximum overflows only beyond exp(88).
        found += [NO_CAP, CAP_OF_HALF, CAP_IN_BASE_2] if features.softcap <= _TELLING_CAP else []
        found = [error for error in found if error != MAXIMUM_NOT_CARRIED or features.softcap > _OVERFLOWING_CAP]
    several = sizes.get("heads", 1) > 1
    if features.sinks:
        found += [NO_SINK, SINK_IN_BASE_2, SINK_TWICE, *([OTHER_SINK] if several else [])]
    if features.alibi and kv_len > 1:
        found += [NO_SLOPE, SLOPE_UPWARDS, SLOPE_IN_BASE_2, *([OTHER_SLOPE] if several else [])]
        found += [SLOPE_TOP_LEFT] if q_len != kv_len else []
    if features.bias != "none":
        found += [NO_BIAS, BIAS_IN_BASE_2, BIAS_SCALED, *([BIAS_OF_NEXT_ROW] if q_len > 1 else [])]
        found += [OTHER_BIAS] if several and features.bias in ("heads", "both") else []
    if features.dropout is not None:
        found += [NO_DROPOUT, UNSCALED_DROPOUT, DROPPED_FROM_SUM, KEPT_DROPPED, *([OTHER_MASK] if several else [])]
        found += [MASK_OF_TILE] if features.crosses(q_len, kv_len, tile) else []
        found += [MASK_OF_NEXT_ROW] if q_len > 1 else []
    return (*found, *_of_windows(q_len, kv_len, causal, features))


def _of_windows(q_len: int, kv_len: int, causal: bool, features: Features) -> list[str]:
    """The errors of a window's ends, where those cut anything off. A causal end has errors of its own."""
    found, left, right = [], features.left, features.right
    if left is not None and left < kv_len:
        found.append(LEFT_SHORT)
        found += [LEFT_LONG, NO_LEFT] if left < kv_len - 1 else []
    if right is not None and not causal and right < q_len:
        found.append(RIGHT_SHORT)
        found += [RIGHT_LONG, NO_RIGHT] if right < q_len - 1 and kv_len > 1 else []
    return found


def answer(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    causal: bool,
    error: str,
    tile: int,
    features: Features = NONE,
    more: Mapping[str, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a kernel with ``error`` would give for the first query head of the first sequence, in float64, unrounded.

    q [batch, heads, q_len, head_dim]; k, v [batch, kv_heads, kv_len, each its head_dim]; ``more``: the tensors of
    ``features.tensors``. Returns out [q_len, head_dim of v] and the log-sum-exp [q_len].
    """
    kv_head = 1 if error == NEIGHBOURS_HEAD else 0
    queries, keys, values = q[0, 0].double(), k[0, kv_head].double(), v[0, kv_head].double()
    q_len, kv_len = len(queries), len(keys)
    logits = scale * _SCALES.get(error, 1.0) * (queries @ keys.T)
    if features.softcap is not None and error != NO_CAP:
        cap = features.softcap * {CAP_OF_HALF: 2.0, CAP_IN_BASE_2: math.log(2.0)}.get(error, 1.0)
        logits = cap * (logits / cap).tanh()
    diagonal = 0 if error == TOP_LEFT else kv_len - q_len
    place = torch.arange(q_len, device=q.device)[:, None] + diagonal
    key = torch.arange(kv_len, device=q.device)[None, :]
    if features.alibi and error != NO_SLOPE:
        assert more is not None
        slope = more["slopes"][1 if error == OTHER_SLOPE else 0].double()
        slope = slope * {SLOPE_UPWARDS: -1.0, SLOPE_IN_BASE_2: math.log(2.0)}.get(error, 1.0)
        away = key - (place - diagonal if error == SLOPE_TOP_LEFT else place - diagonal + kv_len - q_len)
        logits = logits - slope * away.abs()
    if features.bias != "none" and error != NO_BIAS:
        assert more is not None
        bias = more["bias"][0, 1 if error == OTHER_BIAS else 0].double()
        bias = bias.roll(1, dims=0) if error == BIAS_OF_NEXT_ROW else bias
        logits = logits + bias * {BIAS_IN_BASE_2: math.log(2.0), BIAS_SCALED: scale}.get(error, 1.0)
    right = 0 if causal else features.right
    if right is not None and error != NO_RIGHT:
        last = place + right + {DIAGONAL_LOST: -1, ONE_TOO_FAR: 1, RIGHT_SHORT: -1, RIGHT_LONG: 1}.get(error, 0)
        logits = logits.masked_fill(key > last, -torch.inf)
    if features.left is not None and error != NO_LEFT:
        first = place - features.left + {LEFT_SHORT: 1, LEFT_LONG: -1}.get(error, 0)
        logits = logits.masked_fill(key < first, -torch.inf)
    if error == LAST_KEY_LOST:
        logits, values = logits[:, :-1], values[:-1]
    if error == PHANTOM_KEY:  # loaded as 0 beyond the end, and not masked
        logits, values = (torch.nn.functional.pad(t, (0, 1)) for t in (logits, values.T))
        values = values.T
    stay = None
    if features.dropout is not None and error != NO_DROPOUT:
        assert more is not None
        stay = _kept(more["dropout_seed"], features.dropout, tile, error, logits)
    if error == DROPPED_FROM_SUM and stay is not None:
        logits = logits.masked_fill(stay == 0.0, -torch.inf)
    m, l, acc = online(logits, values, tile, error, stay)  # noqa: E741
    assert acc is not None
    if features.sinks and error != NO_SINK:
        assert more is not None
        sink = more["sinks"][1 if error == OTHER_SINK else 0].double()
        sink = sink * (math.log(2.0) if error == SINK_IN_BASE_2 else 1.0)
        top = torch.maximum(m, sink)
        safe = top.masked_fill(top.isneginf(), 0.0)
        acc, alpha = acc * (m - safe).exp(), (m - safe).exp()
        l = l * alpha + (2.0 if error == SINK_TWICE else 1.0) * (sink - safe).exp()  # noqa: E741
        m = top
    dead = m.isneginf()
    l = l.masked_fill(dead, 1.0)  # noqa: E741
    out, lse = (acc / l).masked_fill(dead, 0.0), (m + l.log())[:, 0]
    if error == ZEROS:
        return torch.zeros_like(out), lse
    if error == MEAN_OF_V:
        return values.mean(dim=0).expand_as(out), lse
    if error == NEIGHBOURS_ROW:
        return out.roll(1, dims=0), lse
    return out, lse


def _kept(seed: torch.Tensor, p: float, tile: int, error: str, logits: torch.Tensor) -> torch.Tensor:
    """What the weights of ``logits`` [rows, keys] of the first head are multiplied by with ``error``, float64."""
    rows, keys = logits.shape
    zero = seed.new_zeros(1)
    found = kept(seed, zero, zero + (error == OTHER_MASK), torch.arange(rows, device=seed.device)[None], keys, p)[0]
    if error == MASK_OF_TILE:
        found = found[:, torch.arange(keys, device=seed.device) % tile]
    if error == MASK_OF_NEXT_ROW:
        found = found.roll(1, dims=0)
    if error == KEPT_DROPPED:
        found = ~found
    return found.double() / (1.0 if error == UNSCALED_DROPOUT else 1.0 - p)
