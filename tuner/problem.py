"""A problem: one operator at one shape, dtype and set of options. A pure value; operators make and validate it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.canonical import digest

Scalar = bool | int | float | str | None


@dataclass(frozen=True)
class Problem:
    """What is to be computed, at one size.

    ``shape`` and ``options`` are ordered pairs, complete (defaults filled in) and in the operator's own order, so that
    two equal problems are equal values. Build one with ``tuner.operators.get(name).problem(...)``, which validates.
    """

    operator: str
    shape: tuple[tuple[str, int], ...]
    dtype: str
    options: tuple[tuple[str, Scalar], ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """Shape parameters by name."""
        return dict(self.shape)

    @property
    def settings(self) -> dict[str, Scalar]:
        """Options by name (``causal``, ``scale``, ...)."""
        return dict(self.options)

    @property
    def key(self) -> str:
        """Identity of the problem: a hash of operator, shape, dtype and options."""
        return digest(self.as_json())

    @property
    def label(self) -> str:
        """For people: ``attention_fwd batch=4 heads=32 ... bf16 causal``."""
        words = [self.operator, *(f"{name}={value}" for name, value in self.shape), self.dtype]
        for name, value in self.options:
            if value is True:
                words.append(name)
            elif value is not False and value is not None:
                words.append(f"{name}={value}")
        return " ".join(words)

    def as_json(self) -> dict[str, object]:
        """Plain data that ``from_json`` reads back."""
        return {
            "operator": self.operator,
            "shape": dict(self.shape),
            "dtype": self.dtype,
            "options": dict(self.options),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Problem:
        """The inverse of ``as_json``. The data are trusted to be complete; use the operator to validate."""
        shape = data["shape"]
        options = data["options"]
        assert isinstance(shape, Mapping) and isinstance(options, Mapping)
        return cls(str(data["operator"]), tuple(shape.items()), str(data["dtype"]), tuple(options.items()))
