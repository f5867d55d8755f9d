"""``@tuner.autotune``: reads its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.autotuning.autotuner import Autotuner
from tuner.autotuning.choices import Choices
from tuner.autotuning.hooks import Hooks
from tuner.autotuning.pruning import Pruning
from tuner.autotuning.settings import Settings
from tuner.autotuning.tuning import Timing
from tuner.search import DEFAULT_SAMPLER


def autotune(
    configs: Sequence[Any] | Choices | str | Path,
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = True,
    *,
    reference: Callable[..., Mapping[str, Any]] | None = None,
    tolerance: tuple[float, float] | None = None,
    scratch: Sequence[str] = (),
    made_inputs: bool = True,
    trials: int = 100,
    sampler: str = DEFAULT_SAMPLER,
    seed: int = 0,
    memory_share: float = 0.4,
    db: str | None = None,
) -> Callable[[Any], Autotuner]:
    """Decorates a ``@triton.jit`` kernel: it is launched with the fastest right config for its arguments.

    The arguments up to ``cache_results`` are those of ``@triton.autotune``. ``configs`` may also be choices by name
    (``{"BLOCK": [64, 128], "num_warps": [4, 8]}``) or the path of a search space's YAML file; then ``sampler`` proposes
    at most ``trials`` of them, from ``seed``. ``warmup`` and ``rep`` are milliseconds of launches before and during the
    samples of a config. ``cache_results``: whether what is found is remembered in the database ``db`` (None: the
    default one).

    Configs are timed on copies of the call's tensors, for which at most ``memory_share`` of the free memory is used;
    the caller's are written by the launch proper only. ``reference`` takes the kernel's arguments by name, floating
    tensors in float64, and returns the expected contents of its outputs by argument name. A config that differs by more
    than ``tolerance`` (relative, absolute; None: from the formats and the inputs, ``tuner.autotuning.referee``) is
    never chosen; nor is one that changes another argument, unless ``scratch`` names it, whose contents mean nothing.
    Both are looked at on the call's inputs, and with ``made_inputs`` on others that are made from them.

    Raises ``AutotuneError`` where a name is not the kernel's, or a value cannot be meant.
    """

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(fn, configs, settings)

    settings = Settings(
        key=tuple(key),
        pruning=Pruning.read(prune_configs_by),
        hooks=Hooks(tuple(reset_to_zero or ()), tuple(restore_value or ()), pre_hook, post_hook),
        timing=Timing(do_bench, warmup or 0.0, rep or 0.0),
        graph=use_cuda_graph,
        remember=cache_results,
        reference=reference,
        tolerance=tolerance,
        scratch=tuple(scratch),
        made_inputs=made_inputs,
        trials=trials,
        sampler=sampler,
        seed=seed,
        memory_share=memory_share,
        db=db,
    )
    return decorate
