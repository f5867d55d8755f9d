"""Between ``triton.Config``, which a kernel is launched with, and ``tuner.config.Config``, which is stored."""

from __future__ import annotations

from typing import Any

from tuner.config import Config, Value

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")
"""What a ``triton.Config`` holds beside the kernel's own arguments."""


def stored(name: str, config: Any, hook: str) -> Config:
    """The ``Config`` of a ``triton.Config``. A value that is no scalar is known by its text.

    ``hook`` is the hash of what its own hook does; two hooks may have one name.
    """
    launch: dict[str, Value] = {}
    for key, value in config.all_kwargs().items():
        launch[key] = value if isinstance(value, bool | int | float | str) else str(value)
    chosen = tuple(launch)
    if config.pre_hook is not None:
        name_of_hook = getattr(config.pre_hook, "__qualname__", type(config.pre_hook).__name__)
        launch["pre_hook"] = f"{name_of_hook} {hook}"
    return Config(name, (), tuple(sorted(launch.items())), chosen)


def launchable(config: Config) -> Any:
    """The ``triton.Config`` of a search space's ``Config``."""
    import triton

    values = config.values
    options = {name: values.pop(name) for name in OPTIONS if name in values}
    return triton.Config(values, **options)


def default_config() -> Any:
    """What Triton takes where nobody gives a config."""
    import triton

    return triton.Config({}, num_warps=4, num_stages=3, num_ctas=1)
