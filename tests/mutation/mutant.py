"""What a mutant is: one bug, as rewrites of real templates, and the problem and config on which it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.mutation.rewriting import Change

ALL_DTYPES = ("bf16", "fp16", "fp32")


@dataclass(frozen=True)
class Setup:
    """Where a template is checked: the problem that it is tuned for (the check makes small ones of it), and a config.

    Small blocks, ragged lengths, strided rows, several heads to a key/value head. ``options``: the problem's.
    """

    shape: Mapping[str, int]
    config: str
    options: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Mutant:
    """One bug.

    ``changes``: by template. ``config``, ``shape`` and ``options`` add to the template's setup what the bug needs to
    run at all.
    ``dtypes``: those in which it changes the function beyond its rounding. ``classic``: run in every one of them, not
    in the first alone. ``equivalent``: why the function is still right on every valid input; empty where it is not.
    """

    operator: str
    name: str
    breaks: str
    changes: Mapping[str, tuple[Change, ...]]
    config: str = ""
    causal: bool = False
    shape: Mapping[str, int] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ALL_DTYPES
    classic: bool = False
    equivalent: str = ""
    options: Mapping[str, float | str] = field(default_factory=dict)


Changes = Change | tuple[Change, ...]


def mutant(
    operator: str,
    name: str,
    breaks: str,
    changes: Changes = (),
    on: tuple[str, ...] = (),
    *,
    also: Mapping[str, Changes] | None = None,
    config: str = "",
    causal: bool = False,
    shape: Mapping[str, int] | None = None,
    dtypes: tuple[str, ...] = ALL_DTYPES,
    classic: bool = False,
    equivalent: str = "",
    options: Mapping[str, float | str] | None = None,
) -> Mutant:
    """A mutant of ``changes`` on each template of ``on``, and of ``also`` on those that spell it otherwise."""
    given: dict[str, Changes] = {**dict.fromkeys(on if changes else (), changes), **(also or {})}
    listed = {template: c if isinstance(c, tuple) else (c,) for template, c in given.items()}
    return Mutant(
        operator, name, breaks, listed, config, causal, shape or {}, dtypes, classic, equivalent, options or {}
    )


@dataclass(frozen=True)
class Run:
    """One mutant of one template in one dtype."""

    template: str
    dtype: str
    mutant: Mutant

    @property
    def key(self) -> str:
        return f"{self.mutant.operator}/{self.template}/{self.mutant.name}/{self.dtype}"
