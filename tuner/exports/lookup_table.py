"""Winners in memory, for a program that asks at each call: one look-up in a dictionary, no lock, no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.errors import UsageError
from tuner.exports.selecting import Wanted, winners
from tuner.operators import get
from tuner.problem import Problem, Scalar
from tuner.store.records import StoredWinner
from tuner.store.store import Store

OptionKey = tuple[Scalar | tuple[str, Scalar], ...]
ShapeKey = tuple[int | tuple[str, int], ...]
Place = tuple[str, ShapeKey, OptionKey]


@dataclass(frozen=True, eq=False)
class Lookup:
    """The winners of one operator on one device, as they were stored when it was made.

    ``axes`` and ``option_names`` say in which order ``best`` takes sizes and options; ``defaults`` are the options of a
    call that gives none. Options that came later (``late``) follow as pairs, where they have another value than their
    default: ``(True, False, None, ("window_left", 127))``; so do sizes that came later.
    """

    operator: str
    device: str
    axes: tuple[str, ...]
    option_names: tuple[str, ...]
    defaults: tuple[Scalar, ...]
    found: Mapping[Place, StoredWinner]

    def best(self, dtype: str, shape: ShapeKey, options: OptionKey | None = None) -> StoredWinner | None:
        """The winner for all sizes (in the order of ``axes``), or None where that very problem has none."""
        return self.found.get((dtype, shape, self.defaults if options is None else options))

    def of(self, problem: Problem) -> StoredWinner | None:
        """The winner for ``problem``."""
        return self.found.get(_place(problem)) if problem.operator == self.operator else None

    def __len__(self) -> int:
        return len(self.found)


def read_lookup(store: Store, operator: str, device: str | None, *, estimated: bool) -> Lookup:
    """See ``tuner.lookup``."""
    chosen = get(operator)
    found = [
        winner
        for winner in winners(store, Wanted(operator, device, estimated=estimated))
        if estimated or not winner.record.estimated
    ]
    names = sorted({winner.device.name for winner in found})
    if len(names) > 1:
        raise UsageError(f"{operator} has winners on several devices: {', '.join(names)}; say which with device=")
    options = tuple(option for option in chosen.options if not option.late)
    return Lookup(
        operator=operator,
        device=names[0] if names else "",
        axes=tuple(parameter.name for parameter in chosen.shape_parameters if not parameter.late),
        option_names=tuple(option.name for option in options),
        defaults=tuple(option.default for option in options),
        found={_place(winner.problem): winner for winner in found},
    )


def _place(problem: Problem) -> Place:
    operator = get(problem.operator)
    late = {option.name for option in operator.options if option.late}
    late |= {parameter.name for parameter in operator.shape_parameters if parameter.late}
    options = tuple((name, value) if name in late else value for name, value in problem.options)
    shape = tuple((name, size) if name in late else size for name, size in problem.shape)
    return problem.dtype, shape, options
