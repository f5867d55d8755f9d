"""What stands for a kernel under ``@tuner.autotune``: it is launched, warmed up and unwrapped as Triton's is."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tuner.autotuning import card as cards
from tuner.autotuning.arguments import Key, by_name, defaults_of, kernel_name, problem_of, tuning_key
from tuner.autotuning.choices import Choices, bound_choices, check_choices
from tuner.autotuning.configs import default_config, launchable
from tuner.autotuning.kernel_source import python_function, read_kernel_source
from tuner.autotuning.one_call import OneCall
from tuner.autotuning.settings import Settings
from tuner.autotuning.turns import my_turn
from tuner.errors import AutotuneError
from tuner.interpreter import is_interpreting
from tuner.naming import did_you_mean, listed
from tuner.targets import target

_log = logging.getLogger("tuner.autotune")


class Autotuner:
    """See ``tuner.autotune``.

    ``fn`` is the kernel below, ``base_fn`` the Python function; ``configs`` are tried (of a search space: the plain
    one). ``cache`` holds the chosen ``triton.Config`` by key, and may be written to; ``best_config`` is that of the
    last launch. ``configs_timings`` (milliseconds: median, fast end, slow end) and ``verdict`` are of the last tuning.
    """

    def __init__(self, fn: Any, configs: Sequence[Any] | Choices | str | Path, settings: Settings) -> None:
        self.fn = fn
        self.arg_names: list[str] = list(fn.arg_names)
        self.base_fn = python_function(fn)
        self.keys = list(settings.key)
        self._defaults = defaults_of(fn)
        self.settings = settings
        self.choices: Choices | Path | None = None
        self.configs: list[Any] = []
        if isinstance(configs, str | Path):
            self.choices = Path(configs)
        elif isinstance(configs, Mapping):
            check_choices(configs, self.arg_names)
            self.choices = configs
        else:
            self.configs = list(configs) or [default_config()]
        if self.choices is not None and (settings.pruning.early or settings.pruning.model):
            raise AutotuneError("prune_configs_by goes with a list of configs; say in the search space what is valid")
        self._check_names()
        self.best_config: Any = None
        self.configs_timings: dict[Any, list[float]] = {}
        self.verdict = ""
        self._caches: dict[str, dict[Key, Any]] = {}
        self._said: set[str] = set()

    def __getitem__(self, grid: Any) -> Any:
        """``kernel[grid](...)``."""
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def __repr__(self) -> str:
        return f"<tuner.autotune of {kernel_name(self.fn)}>"

    @property
    def cache(self) -> dict[Key, Any]:
        """The choices for the current device's model: each has its own."""
        return self._caches.setdefault(cards.place(), {})

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the config chosen for these arguments, which is searched for where it is not known.

        Raises ``StudyFailedError`` where no config works, ``AutotuneError`` where the arguments do not fit.
        """
        if torch.compiler.is_compiling():
            return _outside_of_the_graph(self, args, kwargs)
        return self._run(args, kwargs)

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Compile every config that these arguments may use, launching nothing; returns what was compiled."""
        configs = self.settings.pruning.pruned(self._listed(args, kwargs), self._positional(args), kwargs)
        return [self.fn.warmup(*args, **kwargs, **config.all_kwargs()) for config in configs]

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        config = self._config(args, kwargs)
        self.best_config = config
        values = config.all_kwargs()
        if is_interpreting():  # the interpreter of Triton 3.2 refuses options that a config of it has
            values = {name: v for name, v in values.items() if name in config.kwargs or name in self.arg_names}
        if config.pre_hook is not None:
            config.pre_hook({**self._positional(args), **kwargs, **values})
        return self.fn.run(*args, **kwargs, **values)

    def _config(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(self.configs) == 1 and self.choices is None:
            return self.configs[0]
        key = tuning_key(self.keys, by_name(self.arg_names, args, kwargs), self._defaults)
        cache = self.cache
        config = cache.get(key)
        if config is None:
            with my_turn():
                config = cache.get(key)  # another thread may have been at it
                if config is None:
                    config = self._find(key, cache, args, kwargs)
        return config

    def _find(self, key: Key, cache: dict[Key, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._refuse_conflicts(kwargs)
        listed_configs = self._listed(args, kwargs)
        configs = self.settings.pruning.pruned(listed_configs, self._positional(args), kwargs)
        if len(configs) == 1 and self.choices is None:
            cache[key] = configs[0]
            return configs[0]
        if not is_interpreting() and cards.is_capturing():
            config = self._call(args, kwargs, configs).recalled()
            self._say("a CUDA graph is being captured, where nothing can be timed", config is not None, always=True)
            return config or configs[0]  # not kept: the next launch outside of a capture is tuned
        card = None if is_interpreting() else cards.find_card()
        if card is None and (is_interpreting() or self.settings.timing.do_bench is None):
            config = self._call(args, kwargs, configs).recalled()
            where = (
                "kernels are interpreted"
                if is_interpreting()
                else "there is no GPU (TRITON_INTERPRET=1 runs kernels without one)"
            )
            self._say(f"{where}, so nothing is timed", config is not None)
            cache[key] = config or configs[0]
            return cache[key]
        call = self._call(args, kwargs, configs)
        found = call.recalled()
        if found is None:
            try:
                result = call.tune(card)
            except MemoryError as error:
                self._say(f"nothing is timed: {error}", False, always=True)
                cache[key] = configs[0]
                return configs[0]
            if call.obstacle:
                _log.warning("%s: configs are compiled one at a time: %s", kernel_name(self.fn), call.obstacle)
            found, self.verdict, self.configs_timings = result.config, result.verdict, result.timings
        cache[key] = found
        return found

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], configs: list[Any]) -> OneCall:
        call = OneCall(self.fn, self.arg_names, self.settings, self.choices, self.configs, configs, args, kwargs)
        if call.unknown and self.settings.remember and call.unknown not in self._said:
            self._said.add(call.unknown)
            warnings.warn(
                f"{kernel_name(self.fn)}: other processes tune it again, since it is not known when a stored choice "
                f"would be out of date: {call.unknown}",
                stacklevel=7,
            )
        return call

    def _listed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The list; of a search space its plain configs."""
        if self.choices is None:
            return self.configs
        named = by_name(self.arg_names, args, kwargs)
        problem = problem_of(kernel_name(self.fn), self.keys, named, self._defaults)
        card = None if is_interpreting() else cards.find_card()
        device = card.device if card is not None else target(_ANY_TARGET)
        bound = bound_choices(self.choices, problem, device, read_kernel_source(self.fn), self.arg_names)
        self.configs = [launchable(config) for config in bound.plain()]
        return self.configs

    def _positional(self, args: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.arg_names, args, strict=False))

    def _refuse_conflicts(self, kwargs: Mapping[str, Any]) -> None:
        names = (
            {n for c in self.configs for n in c.kwargs} if not isinstance(self.choices, Mapping) else {*self.choices}
        )
        conflicts = sorted(names & kwargs.keys())
        if conflicts:
            raise AutotuneError(
                f"{kernel_name(self.fn)}: {listed(conflicts)} is given in the call and by the configs; leave it to one"
            )

    def _check_names(self) -> None:
        named = {
            "key": self.keys,
            "reset_to_zero": self.settings.hooks.reset_to_zero,
            "restore_value": self.settings.hooks.restore_value,
            "scratch": self.settings.scratch,
        }
        for what, names in named.items():
            for name in names:
                if name not in self.arg_names:
                    raise AutotuneError(
                        f"{what}: {kernel_name(self.fn)} has no argument {name}{did_you_mean(name, self.arg_names)}; "
                        f"it has {listed(self.arg_names)}"
                    )

    def _say(self, why: str, stored: bool, *, always: bool = False) -> None:
        """A warning, once a kernel unless ``always``."""
        if why not in self._said or always:
            self._said.add(why)
            taken = "the stored best config is used" if stored else "the first valid config is used"
            warnings.warn(f"{kernel_name(self.fn)}: {why}; {taken}", stacklevel=7)


_ANY_TARGET = "sm_90"  # whose limits a search space's expressions are told where there is no GPU


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _outside_of_the_graph(autotuner: Autotuner, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What torch.compile must not trace: it breaks its graph here, and launches as without it."""
    return autotuner._run(args, kwargs)
