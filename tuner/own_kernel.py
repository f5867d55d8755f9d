"""A kernel file of the user's own: what its ``launch`` takes and what it says of itself, read without running it.

The file defines ``launch`` as a template does: the operator's tensors by name, and keyword arguments. It may say of
itself, as literals at its top level, ``CONFIG`` (keyword arguments), ``TILES`` and ``MAX_TILES`` (elements a tile, and
tiles that it can handle, by shape parameter) and ``PRECISION`` (fields of the precision profile).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.canonical import digest
from tuner.config import Value
from tuner.config_text import parse_config_text
from tuner.errors import UsageError
from tuner.evaluating import Candidate
from tuner.naming import did_you_mean, listed
from tuner.numerics import FP8, output_dtype
from tuner.operators import Operator, get
from tuner.own_tiles import block_sizes, tile_of
from tuner.precision import PrecisionProfile
from tuner.problem import Problem

_OTHER_AXES = ("q_len", "max_len", "rows")
_KEYS = ("kv_len", "max_kv_len")
_ROW = "cols"
_WANTED = "give a Python file with a function launch that takes the operator's tensors, as a template's does"
_SAID = ("CONFIG", "TILES", "MAX_TILES", "PRECISION")


@dataclass(frozen=True)
class OwnKernel:
    """What a file says. ``required`` and ``optional``: the keyword arguments of ``launch`` without and with default;
    ``tree``: its syntax."""

    path: Path
    positional: tuple[str, ...]
    required: tuple[str, ...]
    optional: tuple[str, ...]
    anything: bool
    tree: ast.Module
    said: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)

    def candidate(self, problem: Problem, config: str, tiles: str, precision: str) -> tuple[Candidate, str]:
        """The file as the check sees it, and in words what was taken for granted.

        ``config``, ``tiles`` and ``precision`` are ``NAME=VALUE,...`` and go before what the file says.

        Raises:
            UsageError: ``launch`` does not fit the operator, or an argument is missing, unknown or of no use.
        """
        operator = get(problem.operator)
        arguments = self._arguments(operator, problem, config)
        sizes, most, shortest, guessed = self._tiles(operator, problem, arguments, tiles)
        profile = self._profile(operator, problem, shortest, precision)  # which may have the most of them
        key = digest([self.path.read_text(encoding="utf-8"), arguments, sizes, most, profile.as_json()])
        return Candidate(key, str(self.path), arguments, sizes, most, profile), guessed

    def _arguments(self, operator: Operator, problem: Problem, config: str) -> dict[str, Value]:
        tensors = operator.launch_tensors(problem)
        given = {*tensors, *operator.scalars(problem)}
        known = (*self.positional, *self.required, *self.optional)
        missing = [name for name in tensors if name not in known]
        if missing and not self.anything:
            wanted = ", ".join((*tensors, *operator.scalars(problem)))
            raise UsageError(f"{self.path}: launch() has no {listed(missing)}; {operator.name} gives it {wanted}")
        arguments = {**self.said.get("CONFIG", {}), **parse_config_text(config)}
        for name in arguments:
            if name not in known and not self.anything:
                raise UsageError(f"{self.path}: launch() takes no {name}{did_you_mean(name, known)}")
        needed = [n for n in (*self.positional, *self.required) if n not in given and n not in arguments]
        if needed:
            raise UsageError(
                f"{self.path}: launch() needs {listed(needed)}; give it, as in --config {needed[0]}=64, "
                "or in a dict CONFIG in the file"
            )
        return arguments

    def _tiles(
        self, operator: Operator, problem: Problem, arguments: Mapping[str, Value], text: str
    ) -> tuple[dict[str, int], dict[str, int], dict[str, int], str]:
        """By axis: elements of the longest tile, tiles at most, elements of the shortest one; and what was guessed."""
        tiles = _whole("TILES", {**self.said.get("TILES", {}), **parse_config_text(text)}, operator)
        most = _whole("MAX_TILES", self.said.get("MAX_TILES", {}), operator)
        guesses = []
        blocks, smallest = block_sizes(self.tree, arguments), dict(tiles)
        reduced = operator.reduced_axis
        for axis in dict.fromkeys((*(a for a in _OTHER_AXES if a in problem.sizes), reduced)):
            found = tile_of(axis, problem.sizes[axis], blocks, reduced=axis == reduced) if axis not in tiles else None
            if found is None:
                continue
            tiles[axis], smallest[axis] = found.size, found.smallest
            if found.names:
                guesses.append(f"{axis} in tiles of {found.size} ({', '.join(found.names)})")
            else:
                guesses.append(
                    f"{axis} in tiles of {found.size} at most (a guess: the file has no block size of it; where a tile "
                    f"is longer, give --tiles {axis}=N, since the check then needs longer inputs)"
                )
            if found.names and axis == _ROW and found.smallest >= problem.sizes[axis] and axis not in most:
                most[axis] = 1
                guesses.append(f"never two along {axis}")
        return tiles, most, smallest, ", ".join(guesses)

    def _profile(self, operator: Operator, problem: Problem, tiles: Mapping[str, int], text: str) -> PrecisionProfile:
        axis, wide = operator.reduced_axis, problem.dtype == "fp32"
        tf32 = bool(problem.settings.get("allow_tf32"))
        fields: dict[str, Value] = {"input": problem.dtype, "output": output_dtype(problem.dtype)}
        fields["tiles"] = -(-problem.sizes[axis] // tiles[axis])
        if axis in _KEYS:
            fields |= {"p": problem.dtype, "dot": ("tf32" if tf32 else "ieee") if wide else "16bit"}
            if problem.dtype == FP8:
                fields |= {"dot": "8bit", "pv_terms": tiles[axis]}
        said = {**self.said.get("PRECISION", {}), **parse_config_text(text)}
        for name, value in said.items():
            if name not in PrecisionProfile.__dataclass_fields__:
                known = tuple(PrecisionProfile.__dataclass_fields__)
                raise UsageError(f"precision has no {name}{did_you_mean(name, known)}; it has {listed(known)}")
            fields[name] = value
        try:
            return PrecisionProfile(**fields)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise UsageError(f"precision: {error}") from None


def read_own_kernel(path: Path) -> OwnKernel:
    """Read the file at ``path``.

    Raises:
        UsageError: there is no such file, it is no Python, has no ``launch``, or says what is no literal.
    """
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(
            f"{path}: cannot be read: {reason}; --file takes a Python file with a function launch"
        ) from None
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = f"{error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else f"1: {error}"
        raise UsageError(f"{path}:{line}; {_WANTED}") from None
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "launch"]
    if not found:
        raise UsageError(f"{path}: defines no function launch; {_WANTED}")
    given = found[-1].args
    plain = [a.arg for a in (*given.posonlyargs, *given.args)]
    with_default = plain[len(plain) - len(given.defaults) :]
    named = list(zip((a.arg for a in given.kwonlyargs), given.kw_defaults, strict=True))
    return OwnKernel(
        path,
        tuple(name for name in plain if name not in with_default),
        tuple(name for name, default in named if default is None),
        (*with_default, *(name for name, default in named if default is not None)),
        given.kwarg is not None,
        tree,
        {name: _literal(path, tree, name) for name in _SAID},
    )


def _literal(path: Path, tree: ast.Module, name: str) -> dict[str, Value]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                value = None
            if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
                raise UsageError(f"{path}:{node.lineno}: {name} must be a dict of literals, such as {{'BLOCK': 64}}")
            return value
    return {}


def _whole(what: str, given: Mapping[str, Value], operator: Operator) -> dict[str, int]:
    known = [parameter.name for parameter in operator.shape_parameters]
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f"{what}: {operator.name} has no {name}{did_you_mean(name, known)}; it has {listed(known)}"
            )
        if type(value) is not int or value < 1:
            raise UsageError(f"{what}: {name} must be a whole number of at least 1, but got {value!r}")
    return {name: int(value) for name, value in given.items()}
