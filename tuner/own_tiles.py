"""What tiles a kernel file of the user's own has, as far as its text says: read, not run.

A block parameter is what is called BLOCK, TILE or CHUNK something: an argument of ``launch``, a keyword of a call, a
key of a config, a default, a constant. Of each axis the largest counts, for the check needs several tiles and a ragged
tail of the real one; lengths that are made of a larger tile have them of a smaller one as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tuner.config import Value

_BLOCK = re.compile(r"(?i)(?<![a-z])(block|tile|chunk)(?!s)")  # not tiles_m, which is how many there are
_OF_QUERIES = frozenset({"m", "q", "row", "rows", "queries", "query"})
_OF_KEYS = frozenset({"n", "k", "kv", "col", "cols", "keys", "key", "columns"})
_OF_HEADS = frozenset({"b", "d", "dim", "dk", "dmodel", "dv", "group", "h", "head", "headdim", "heads"})
_SILENT = frozenset({"block", "tile", "chunk", "size", ""})
_PASSED_ON = frozenset({"min", "max", "int", "next_power_of_2", "constexpr"})
# Taken where nothing is found: more than kernels take, and never more than the axis needs.
_USUAL_MOST = {"cols": 1024}
_USUAL_MOST_ELSE = 256
_SMALLEST = 16


@dataclass(frozen=True)
class FoundTile:
    """How long a tile of an axis is taken to be: at most ``size``, at least ``smallest`` elements.

    ``names``: the parameters that say so; none where it is a guess.
    """

    size: int
    smallest: int
    names: tuple[str, ...] = ()


def block_sizes(tree: ast.Module, arguments: Mapping[str, Value]) -> dict[str, set[int]]:
    """By name of a block parameter, every size that the file gives it; what ``arguments`` of its launch say goes
    before that."""
    named: dict[str, set[int]] = {}
    passed: dict[str, set[str]] = {}
    for name, value in _pairs(tree):
        named.setdefault(name, set()).update(_numbers(value))
        passed.setdefault(name, set()).update(n.id for n in ast.walk(value) if isinstance(n, ast.Name))
    named |= {name: {number} for name, number in arguments.items() if type(number) is int}
    found = {}
    for name in [name for name in named if _BLOCK.search(name)]:
        # BLOCK_N=size, where size is a constant or an argument.
        others = set() if name in arguments else {n for other in passed.get(name, ()) for n in named.get(other, ())}
        found[name] = {size for size in named[name] | others if size > 0}
    return {name: sizes for name, sizes in found.items() if sizes}


def tile_of(axis: str, length: int, sizes: Mapping[str, set[int]], *, reduced: bool) -> FoundTile | None:
    """The tile of ``axis``, of ``length`` elements in the tuned problem; ``reduced``: whether sums run over it.

    None for an axis that is not reduced and of which no parameter speaks.
    """
    mine, other = (_OF_KEYS, _OF_QUERIES) if reduced else (_OF_QUERIES, _OF_KEYS)
    speaking = {name: set(name.lower().split("_")) - _SILENT for name in sizes}
    fitting = [name for name, words in speaking.items() if words & mine]
    if reduced:  # a name that says nothing may be of the axis that matters most
        fitting += [name for name, words in speaking.items() if not words & (mine | other | _OF_HEADS)]
    if fitting:
        every = [size for name in fitting for size in sizes[name]]
        return FoundTile(max(every), min(every), tuple(fitting))
    if not reduced:
        return None
    most = 1 << max(0, length - 1).bit_length()
    return FoundTile(max(1, min(_USUAL_MOST.get(axis, _USUAL_MOST_ELSE), most)), min(_SMALLEST, most))


def _pairs(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Every name that the file gives a value: keywords of calls, keys of dicts, defaults, assignments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from ((k.arg, k.value) for k in node.keywords if k.arg)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value
        elif isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value
        elif isinstance(node, ast.FunctionDef):
            yield from _defaults(node.args)


def _defaults(given: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    plain = [*given.posonlyargs, *given.args]
    for argument, default in zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True):
        yield argument.arg, default
    for argument, keyword in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if keyword is not None:
            yield argument.arg, keyword


def _numbers(value: ast.expr) -> set[int]:
    """The whole numbers that may come of an expression: those in it, with products and powers worked out."""
    if isinstance(value, ast.Constant):
        return {value.value} if type(value.value) is int else set()
    if isinstance(value, ast.BinOp):
        left, right = _numbers(value.left), _numbers(value.right)
        if isinstance(value.op, ast.Mult):
            return {a * b for a in left for b in right}
        if isinstance(value.op, ast.Pow | ast.LShift):
            small = {b for b in right if b < 32}
            return {a**b if isinstance(value.op, ast.Pow) else a << b for a in left for b in small}
        return set()
    if isinstance(value, ast.IfExp):
        return _numbers(value.body) | _numbers(value.orelse)
    if isinstance(value, ast.Call) and _called(value.func) in _PASSED_ON:
        return _union(value.args)
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        return _union(value.elts)
    return set()


def _union(values: Iterable[ast.expr]) -> set[int]:
    return {number for value in values for number in _numbers(value)}


def _called(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
