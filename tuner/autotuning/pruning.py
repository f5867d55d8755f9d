"""Which configs of a list a call may use: the caller's own functions, with the meaning that Triton gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import AutotuneError
from tuner.naming import did_you_mean, listed

_FIELDS = ("perf_model", "top_k", "early_config_prune")


@dataclass(frozen=True)
class Pruning:
    """``early`` takes the configs and the arguments by name; ``model`` gives a time for one config.

    ``top_k`` of the configs with the least modelled time are kept: a number, or a share of at most 1.0.
    """

    early: Callable[..., Any] | None = None
    model: Callable[..., Any] | None = None
    top_k: int | float = 1.0

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> Pruning:
        """From ``prune_configs_by``. Raises ``AutotuneError``."""
        given = given or {}
        for name in given:
            if name not in _FIELDS:
                raise AutotuneError(
                    f"prune_configs_by has no {name!r}{did_you_mean(name, _FIELDS)}; it takes {listed(_FIELDS)}"
                )
        top_k = given.get("top_k", 1.0)
        share = isinstance(top_k, float) and 0.0 < top_k <= 1.0
        if not share and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
            raise AutotuneError(
                f"top_k must be a share above 0.0 and up to 1.0, or a number of configs, but is {top_k!r}"
            )
        return cls(given.get("early_config_prune"), given.get("perf_model"), top_k)

    def admitted(self, configs: list[Any], positional: Mapping[str, Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """What ``early`` leaves. Raises ``AutotuneError`` where that is nothing.

        ``positional``: the arguments given by place, by name; ``kwargs`` those by keyword, and the grid.
        """
        if self.early is None:
            return configs
        left = list(self.early(configs, positional, **kwargs))
        if not left:
            raise AutotuneError(
                "no valid config is left: early_config_prune returned none of "
                f"{len(configs)}; let it return at least one"
            )
        return left

    def pruned(self, configs: list[Any], positional: Mapping[str, Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """What ``early`` leaves, and of that what ``model`` finds the fastest: at least one."""
        left = self.admitted(configs, positional, kwargs)
        if self.model is None:
            return left
        count = self.top_k if isinstance(self.top_k, int) else max(1, int(len(left) * self.top_k))
        if len(left) <= count:
            return left
        times = [self.model(**positional, **kwargs, **config.all_kwargs()) for config in left]
        order = sorted(range(len(left)), key=lambda at: times[at])
        return [left[at] for at in order[:count]]
