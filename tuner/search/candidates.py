"""The valid configs that have not been tried, as points of an index grid, and which of them is nearest to a wish."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tuner.config import Config, Value
from tuner.errors import ConfigError
from tuner.search.base import SearchSpace

ENUMERATE_LIMIT = 200_000
"""Up to this many valid configs are listed once; beyond, valid ones are found by trying."""

GRID_LIMIT = 20_000_000
"""Beyond this many combinations, valid or not, nobody starts to list them."""


@dataclass(frozen=True)
class Axis:
    """One searched switch or parameter of one template.

    Numbers are ``ordered``, from low to high: neighbours in the list are neighbours for the sampler, by index. Booleans
    and strings are not.
    """

    name: str
    values: tuple[Value, ...]
    ordered: bool

    @classmethod
    def of(cls, name: str, values: tuple[Value, ...]) -> Axis:
        """The axis over ``values``, each once."""
        distinct = tuple(dict.fromkeys(values))
        numbers = [v for v in distinct if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(numbers) == len(distinct):
            return cls(name, tuple(sorted(numbers)), True)
        return cls(name, distinct, False)


@dataclass(frozen=True)
class Point:
    """A config as indices into its template's axes, in their order."""

    template: str
    indices: tuple[int, ...]


class Candidates(Protocol):
    """The untried valid points."""

    axes: Mapping[str, tuple[Axis, ...]]

    @property
    def exhausted(self) -> bool:
        """True where no untried point is left."""
        ...

    def open_templates(self) -> tuple[str, ...]:
        """The templates that have, or may have, untried points."""
        ...

    def nearest(self, wish: Point, rng: np.random.Generator) -> Point | None:
        """The untried point nearest to ``wish`` in its template, else any untried point, else None. Takes nothing."""
        ...

    def take(self, point: Point) -> bool:
        """Marks ``point`` as tried; False where it already was."""
        ...

    def release(self, point: Point) -> None:
        """Makes ``point`` untried again."""
        ...

    def config(self, point: Point) -> Config:
        """The config at ``point``."""
        ...

    def point(self, config: Config) -> Point:
        """The inverse of ``config``. Raises ``KeyError`` where the config lies off the grid."""
        ...

    def is_valid(self, point: Point) -> bool:
        """Whether ``point`` is valid, tried or not."""
        ...

    def points(self) -> Iterator[Point] | None:
        """Every valid point, or None where they are too many to list."""
        ...


def make_candidates(bound: SearchSpace) -> Candidates:
    """The candidates of ``bound``: listed where they are few enough, found by trying otherwise.

    Raises ``ConfigError`` where no template applies.
    """
    if not bound.templates:
        reasons = "; ".join(f"{name}: {why}" for name, why in bound.refused.items())
        raise ConfigError(f"no template of the search space applies: {reasons}")
    domains = {template: dict(bound.domain(template)) for template in bound.templates}
    plain = tuple(bound.plain())
    # A plain config is valid even where its values are in no list: it gets a place on the grid of its own.
    axes = {
        template: tuple(
            Axis.of(name, (*values, *(c.values[name] for c in plain if c.template == template)))
            for name, values in domain.items()
        )
        for template, domain in domains.items()
    }
    if sum(math.prod(len(a.values) for a in own) for own in axes.values()) <= GRID_LIMIT:
        configs = list(itertools.islice(bound.configs(), ENUMERATE_LIMIT + 1))
        if len(configs) <= ENUMERATE_LIMIT:
            return ListedCandidates(bound, axes, (*configs, *plain))
    return FoundCandidates(bound, axes, plain)


class _Grid:
    """What both kinds share: from configs to points and back."""

    def __init__(self, bound: SearchSpace, axes: Mapping[str, tuple[Axis, ...]]) -> None:
        self._bound = bound
        self.axes = axes
        self._positions = {t: [{v: i for i, v in enumerate(a.values)} for a in own] for t, own in axes.items()}
        self._plain: dict[Point, Config] = {self.point(c): c for c in bound.plain()}

    def point(self, config: Config) -> Point:
        """The point of ``config``. Raises ``KeyError`` where it lies off the grid."""
        values, positions = config.values, self._positions[config.template]
        return Point(
            config.template,
            tuple(position[values[a.name]] for position, a in zip(positions, self.axes[config.template], strict=True)),
        )

    def chosen(self, point: Point) -> dict[str, Value]:
        """The values at ``point``, by name."""
        return {a.name: a.values[i] for a, i in zip(self.axes[point.template], point.indices, strict=True)}

    def config(self, point: Point) -> Config:
        """The config at ``point``."""
        return self._plain.get(point) or self._bound.config(point.template, self.chosen(point))


class ListedCandidates(_Grid):
    """Every valid config as a row of a matrix, one matrix a template."""

    def __init__(self, bound: SearchSpace, axes: Mapping[str, tuple[Axis, ...]], configs: tuple[Config, ...]) -> None:
        super().__init__(bound, axes)
        rows: dict[str, dict[tuple[int, ...], int]] = {template: {} for template in axes}
        for config in configs:
            own = rows[config.template]
            own.setdefault(self.point(config).indices, len(own))
        self._rows = {template: own for template, own in rows.items() if own}
        self._points = {template: tuple(own) for template, own in self._rows.items()}
        self._matrix = {template: _embed(axes[template], own) for template, own in self._points.items()}
        self._free = {template: np.ones(len(own), dtype=bool) for template, own in self._points.items()}
        self._left = sum(len(own) for own in self._points.values())

    @property
    def exhausted(self) -> bool:
        return self._left == 0

    def open_templates(self) -> tuple[str, ...]:
        return tuple(template for template, free in self._free.items() if free.any())

    def is_valid(self, point: Point) -> bool:
        return point.indices in self._rows.get(point.template, {})

    def points(self) -> Iterator[Point]:
        return (Point(template, indices) for template, own in self._points.items() for indices in own)

    def nearest(self, wish: Point, rng: np.random.Generator) -> Point | None:
        free = self._free.get(wish.template)
        if free is not None and free.any():
            row = self._rows[wish.template].get(wish.indices)
            if row is not None and free[row]:
                return wish
            where = np.flatnonzero(free)
            target = _embed(self.axes[wish.template], (wish.indices,))[0]
            distance = np.square(self._matrix[wish.template][where] - target).sum(axis=1)
            ties = where[distance <= distance.min() + 1e-6]
            return Point(wish.template, self._points[wish.template][int(rng.choice(ties))])
        for template in self.open_templates():
            return Point(template, self._points[template][int(rng.choice(np.flatnonzero(self._free[template])))])
        return None

    def take(self, point: Point) -> bool:
        row = self._rows[point.template][point.indices]
        was_free = bool(self._free[point.template][row])
        self._free[point.template][row] = False
        self._left -= was_free
        return was_free

    def release(self, point: Point) -> None:
        row = self._rows[point.template][point.indices]
        self._left += not self._free[point.template][row]
        self._free[point.template][row] = True


class FoundCandidates(_Grid):
    """A space too large to list: valid points are found by trying around the wish, then anywhere."""

    AROUND, ANYWHERE = 400, 20_000

    def __init__(self, bound: SearchSpace, axes: Mapping[str, tuple[Axis, ...]], plain: tuple[Config, ...]) -> None:
        super().__init__(bound, axes)
        self._tried: set[Point] = set()

    @property
    def exhausted(self) -> bool:
        return False

    def open_templates(self) -> tuple[str, ...]:
        return tuple(self.axes)

    def is_valid(self, point: Point) -> bool:
        return point in self._plain or self._bound.is_valid(point.template, self.chosen(point))

    def points(self) -> None:
        return None

    def nearest(self, wish: Point, rng: np.random.Generator) -> Point | None:
        if self._is_open(wish):
            return wish
        for attempt in range(self.AROUND):
            near = self._step(wish, 1 + attempt // 50, rng)
            if self._is_open(near):
                return near
        templates = [wish.template, *(t for t in self.axes if t != wish.template)]
        for template in templates:
            for _ in range(self.ANYWHERE):
                point = Point(template, tuple(int(rng.integers(len(a.values))) for a in self.axes[template]))
                if self._is_open(point):
                    return point
        return None

    def take(self, point: Point) -> bool:
        was_free = point not in self._tried
        self._tried.add(point)
        return was_free

    def release(self, point: Point) -> None:
        self._tried.discard(point)

    def _is_open(self, point: Point) -> bool:
        return point not in self._tried and self.is_valid(point)

    def _step(self, wish: Point, steps: int, rng: np.random.Generator) -> Point:
        """``wish`` with up to ``steps`` of its coordinates moved, ordered ones to a neighbour."""
        indices = list(wish.indices)
        for _ in range(steps):
            at = int(rng.integers(len(indices)))
            axis = self.axes[wish.template][at]
            if axis.ordered:
                indices[at] = min(max(indices[at] + int(rng.choice((-1, 1))), 0), len(axis.values) - 1)
            else:
                indices[at] = int(rng.integers(len(axis.values)))
        return Point(wish.template, tuple(indices))


def _embed(axes: tuple[Axis, ...], rows: tuple[tuple[int, ...], ...]) -> npt.NDArray[np.float32]:
    """Rows of indices as points of a space where one unit is the whole range of an axis, or two unlike categories."""
    table = np.asarray(rows, dtype=np.float32).reshape(len(rows), len(axes))
    columns: list[npt.NDArray[np.float32]] = []
    for at, axis in enumerate(axes):
        size = len(axis.values)
        if axis.ordered:
            columns.append(table[:, at : at + 1] / np.float32(max(size - 1, 1)))
        else:
            unit = np.eye(size, dtype=np.float32) * np.float32(math.sqrt(0.5))
            columns.append(unit[table[:, at].astype(np.int64)])
    return np.concatenate(columns, axis=1) if columns else np.zeros((len(rows), 1), dtype=np.float32)
