"""Small shapes on which a config of a declared operator is checked, made of its tiles."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.operators.small_problems import integer_class
from tuner.own_operators.declaration import Size

_FEW = 5
_MANY_TILES = 7
_REACH = 256


def small_shapes(
    parameters: Mapping[str, Size],
    tuned: Mapping[str, int],
    reduced: str,
    tiles: Mapping[str, int],
    max_tiles: Mapping[str, int],
    *,
    same_binary: bool,
) -> list[dict[str, int]]:
    """The main shape first: three tiles and a tail of the reduced axis, two and a tail of the other tiled ones, few of
    the rest. Then one cut-off tile, whole tiles, and many tiles with a lone element after them, with few of the rest.

    Where a template takes an axis in at most ``max_tiles``, as many as it can. With ``same_binary`` each size keeps the
    class that Triton specialises on.
    """

    def length(name: str, about: int, *, ragged: bool = True) -> int:
        size, wanted = parameters[name], integer_class(tuned[name])
        if size.fixed or tuned[name] == 1:
            return tuned[name]
        tile = tiles.get(name, 1)
        most = max_tiles[name] * tile if name in max_tiles else None
        least = size.minimum
        if most is not None:
            # A block of a whole row is compiled for the sizes above its half.
            least, about = max(least, most - tile + tile // 2 + 1), min(about, most - (3 if ragged else 0))
        return _near(about, least, most, size.multiple_of, wanted if same_binary else None, tile if ragged else 1)

    def shape(of_reduced: int, *, ragged: bool = True, few: bool = False) -> dict[str, int]:
        made = {}
        for name in parameters:
            if name == reduced:
                made[name] = length(name, of_reduced, ragged=ragged)
            elif name in tiles and not few:
                made[name] = length(name, 2 * tiles[name] + max(1, tiles[name] // 3))
            else:
                made[name] = length(name, min(tuned[name], _FEW))
        return made

    tile = tiles.get(reduced, 1)
    shapes = [
        shape(3 * tile + max(1, tile // 3)),
        shape(max(1, tile // 2 + 1)),
        shape(3 * tile, ragged=False),
        shape(_MANY_TILES * tile + 1, few=True),
    ]
    if reduced in max_tiles:
        shapes = [shapes[0], shape(max_tiles[reduced] * tile, ragged=False)]
    return [dict(items) for items in dict.fromkeys(tuple(s.items()) for s in shapes)]


def _near(about: int, least: int, most: int | None, multiple: int, wanted: str | None, tile: int) -> int:
    """The size nearest to ``about`` from ``least`` to ``most``, of class ``wanted`` and no whole tiles, if any is."""
    start = max(least, about)
    reach = max(_REACH, 2 * multiple)
    found = [*range(start, start + reach), *range(start - 1, max(0, least - 1), -1)]
    found = [n for n in found if n % multiple == 0 and n >= least and (most is None or n <= most)]
    kept = [n for n in found if wanted is None or integer_class(n) == wanted] or found
    uneven = [n for n in kept if tile == 1 or n % tile] or kept
    return min(uneven, key=lambda n: (abs(n - about), n)) if uneven else max(least, multiple)
