"""What is done around a launch that is tried: the caller's hooks, with the meaning that Triton gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Hooks:
    """``reset_to_zero`` and ``restore_value`` name arguments; a ``pre`` of the caller's own takes the place of zeroing.

    Hooks are called around the launches that are tried, each on arguments of its own, and never with the caller's
    tensors: nothing of these is changed, so that there is nothing to reset.
    """

    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    pre: Callable[..., Any] | None = None
    post: Callable[..., Any] | None = None

    @property
    def zeroed(self) -> tuple[str, ...]:
        """The arguments that hold zeros before each launch."""
        return () if self.pre is not None else self.reset_to_zero

    def around_each(self, config: Any) -> bool:
        """Whether something of the caller's runs around every single launch of ``config``."""
        return self.pre is not None or self.post is not None or config.pre_hook is not None

    def before_any(self, config: Any) -> bool:
        """Whether something of the caller's runs before a launch of ``config``."""
        return self.pre is not None or config.pre_hook is not None

    def before(self, config: Any, named: Mapping[str, Any]) -> None:
        """The config's own hook, then the decorator's."""
        if config.pre_hook is not None:
            config.pre_hook(named)
        if self.pre is not None:
            self.pre(named)

    def after(self, named: Mapping[str, Any], exception: BaseException | None) -> None:
        """The decorator's hook; ``exception`` is what the launch raised."""
        if self.post is not None:
            self.post(named, exception=exception)
