"""All mutants, and the runs that they make."""

from __future__ import annotations

import zlib

from tests.mutation import (
    attention_addresses,
    attention_biases,
    attention_bwd_mutants,
    attention_dropouts,
    attention_heads,
    attention_loops,
    attention_masks,
    attention_recurrence,
    attention_softcaps,
    attention_value_dims,
    attention_values,
    attention_windows,
    cross_entropy_bwd_mutants,
    cross_entropy_mutants,
    decode_bugs,
    fp8_bugs,
    large_tensors,
    log_softmax_mutants,
    sizes_and_strides,
    softmax_bwd_mutants,
    softmax_loops,
    softmax_masks,
    softmax_recurrence,
    softmax_values,
    topk_bugs,
    varlen_bugs,
)
from tests.mutation.mutant import Mutant, Run
from tuner.numerics import FP8

MUTANTS: tuple[Mutant, ...] = (
    *softmax_recurrence.RECURRENCE,
    *softmax_masks.MASKS,
    *softmax_loops.LOOPS,
    *softmax_loops.LAUNCHES,
    *softmax_values.VALUES,
    *log_softmax_mutants.MUTANTS,
    *softmax_bwd_mutants.MUTANTS,
    *cross_entropy_mutants.MUTANTS,
    *cross_entropy_bwd_mutants.MUTANTS,
    *topk_bugs.BUGS,
    *attention_recurrence.RECURRENCE,
    *attention_masks.MASKS,
    *attention_values.VALUES,
    *attention_loops.LOOPS,
    *attention_addresses.ADDRESSES,
    *attention_addresses.LAUNCHES,
    *attention_windows.WINDOWS,
    *attention_softcaps.SOFTCAPS,
    *attention_heads.HEADS,
    *attention_biases.BIASES,
    *attention_bwd_mutants.MUTANTS,
    *large_tensors.LARGE,
    *sizes_and_strides.SIZES,
    *sizes_and_strides.STRIDES,
    *decode_bugs.RECURRENCE,
    *decode_bugs.LENGTHS,
    *decode_bugs.PLACES,
    *decode_bugs.MERGING,
    *varlen_bugs.RECURRENCE,
    *varlen_bugs.ENDS,
    *varlen_bugs.PLACES,
    *varlen_bugs.SEARCH,
    *attention_value_dims.VALUE_DIMS,
    *fp8_bugs.BUGS,
    *attention_dropouts.DROPOUTS,
)


def runs(every_dtype: bool) -> tuple[Run, ...]:
    """Each mutant on each of its templates and in each of its dtypes; by operator, template, and dtype.

    Without ``every_dtype`` in its first dtype and on the one of its templates that its name picks; the classics on all
    of them, on the first in the other dtypes too. Of a feature's mutants, which have options or values of their own
    dim, and of those of fp8, every third one. An equivalent mutant, which passes the whole check, runs on its first
    template alone, where that is picked.
    """
    found = []
    features = [m for m in MUTANTS if m.options or "v_head_dim" in m.shape or m.dtypes == (FP8,)]
    of_features = [mutant.name for mutant in features if not mutant.equivalent]
    for mutant in MUTANTS:
        named = zlib.crc32(mutant.name.encode()) % len(mutant.changes)
        picked: tuple[int, ...] = (named,)
        if mutant.name in of_features and of_features.index(mutant.name) % 3:
            picked = ()
        for place, template in enumerate(mutant.changes):
            if not (every_dtype or mutant.classic or place in picked):
                continue
            if every_dtype or (mutant.classic and place == 0):
                dtypes = mutant.dtypes
            else:
                dtypes = () if mutant.equivalent and place else mutant.dtypes[:1]
            found += [Run(template, dtype, mutant) for dtype in dtypes]
    return tuple(sorted(found, key=lambda run: (run.mutant.operator, run.template, run.dtype)))


def honest_runs(chosen: tuple[Run, ...]) -> tuple[Run, ...]:
    """The templates themselves, on every problem and config of ``chosen``."""
    seen: dict[tuple[object, ...], Run] = {}
    for run in chosen:
        m = run.mutant
        place = (m.operator, run.template, run.dtype, m.config, m.causal, *m.shape.items(), *m.options.items())
        kind = f"honest_{m.config or 'plain'}{'_causal' if m.causal else ''}{'_other_shape' if m.shape else ''}"
        kind += "".join(f"_{name}={value}" for name, value in m.options.items())
        itself = Mutant(m.operator, kind, "", {run.template: ()}, m.config, m.causal, m.shape, options=m.options)
        seen.setdefault(place, Run(run.template, run.dtype, itself))
    return tuple(seen.values())
