"""A recorded search space: every valid config, what became of it, and what finding out took. Pure values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tuner.config import Config, Value
from tuner.errors import UsageError
from tuner.trial import Outcome


@dataclass(frozen=True)
class Row:
    """One config of a recording. ``time_us``: microseconds, there exactly where the outcome is ``timed``.

    ``compile_ms``, ``check_ms`` and ``bench_ms``: milliseconds that compiling, checking and timing it took (0: not
    recorded).
    """

    config: Config
    outcome: Outcome
    time_us: float | None
    compile_ms: float = 0.0
    check_ms: float = 0.0
    bench_ms: float = 0.0

    @property
    def cost_s(self) -> float:
        """Seconds that trying it took."""
        return (self.compile_ms + self.check_ms + self.bench_ms) / 1000.0


@dataclass(frozen=True, eq=False)
class Recording:
    """A recorded space: its valid configs as ``rows``, each once. ``about`` says where it comes from.

    ``plain_keys`` are the keys of the configs that a tuner would start with (none: not known).

    It has what a search needs of a ``BoundSpace``: templates, domains, which configs are valid, and which are plain.
    """

    name: str
    rows: tuple[Row, ...]
    about: Mapping[str, object] = field(default_factory=dict)
    plain_keys: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not any(row.time_us is not None for row in self.rows):
            raise UsageError(f"{self.name}: no config of this recording has a time, so there is nothing to search for")
        if len(self._by_values) < len(self.rows):
            seen: set[tuple[object, ...]] = set()
            for row in self.rows:
                values = _identity(row.config.template, row.config.values)
                if values in seen:
                    raise UsageError(
                        f"{self.name}: two rows are the config {row.config.label}; a recording has each once"
                    )
                seen.add(values)

    @cached_property
    def _by_values(self) -> dict[tuple[object, ...], Row]:
        return {_identity(row.config.template, row.config.values): row for row in self.rows}

    @cached_property
    def _domains(self) -> dict[str, dict[str, tuple[Value, ...]]]:
        found: dict[str, dict[str, dict[Value, None]]] = {}
        for row in self.rows:
            domain = found.setdefault(row.config.template, {name: {} for name in row.config.chosen})
            for name, value in row.config.values.items():
                domain[name][value] = None
        return {t: {n: _sorted(tuple(v)) for n, v in domain.items()} for t, domain in found.items()}

    @property
    def best_us(self) -> float:
        """Microseconds of the fastest config."""
        return min(row.time_us for row in self.rows if row.time_us is not None)

    @property
    def failed(self) -> int:
        """How many configs have no time."""
        return sum(row.time_us is None for row in self.rows)

    @property
    def templates(self) -> tuple[str, ...]:
        """The templates in the order in which they first appear."""
        return tuple(self._domains)

    def row(self, config: Config) -> Row:
        """What became of ``config``. Raises ``KeyError`` where it is not in the recording."""
        return self._by_values[_identity(config.template, config.values)]

    def domain(self, template: str) -> dict[str, tuple[Value, ...]]:
        """By parameter, the values that occur, from low to high where they are numbers."""
        return dict(self._domains[template])

    def is_valid(self, template: str, chosen: Mapping[str, Value]) -> bool:
        """Whether there is a row for these values: what is missing breaks the kernel's own constraints."""
        return _identity(template, chosen) in self._by_values

    def config(self, template: str, chosen: Mapping[str, Value]) -> Config:
        """The config with these values. Raises ``KeyError`` where it is not in the recording."""
        return self._by_values[_identity(template, chosen)].config

    def configs(self) -> Iterator[Config]:
        """Every config, in the recording's order."""
        return (row.config for row in self.rows)

    def size(self) -> int:
        """How many configs there are."""
        return len(self.rows)

    def plain(self) -> tuple[Config, ...]:
        """The configs that a tuner would start with, where the recording says so."""
        wanted = set(self.plain_keys)
        return tuple(row.config for row in self.rows if row.config.key in wanted) if wanted else ()


def _identity(template: str, values: Mapping[str, Value]) -> tuple[object, ...]:
    # True == 1 in Python, but a switch is not a number.
    return (template, *((name, isinstance(value, bool), value) for name, value in sorted(values.items())))


def _sorted(values: tuple[Value, ...]) -> tuple[Value, ...]:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return tuple(sorted(numbers)) if len(numbers) == len(values) else tuple(sorted(values, key=str))
