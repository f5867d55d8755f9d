"""Reads a YAML list of problems to tune: ``tuner tune --problems problems.yaml``.

::

    defaults: {dtype: bf16}                       # optional; entries override it name by name
    problems:
      - operator: softmax
        shape: {rows: 4096, cols: [1024, 32768]}  # lists are multiplied out
      - operator: attention_fwd
        shape: {batch: 4, heads: 32, q_len: 4096, head_dim: 128}
        dtype: [bf16, fp16]
        options: {causal: true}

Without defaults the list of entries may be the whole file. ``count: 12`` in an entry says how often a program runs it,
which is what ``tuner capture`` writes and ``tuner coverage`` weighs by.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tuner.errors import ProblemError, SpaceError
from tuner.located_yaml import Located, Where, read_yaml
from tuner.naming import did_you_mean, listed
from tuner.operator_lookup import Lookup, OperatorFacts
from tuner.own_operators.files import find
from tuner.problem import Problem
from tuner.yaml_form import form_error

MAX_PROBLEMS = 10_000

_EXAMPLE = "write entries such as `- {operator: softmax, shape: {rows: 4096, cols: 1024}, dtype: bf16}`"


class EntryModel(BaseModel):
    """The form of an entry, and of ``defaults``."""

    model_config = ConfigDict(extra="forbid", strict=True)

    operator: str | None = None
    shape: dict[str, Any] = {}
    dtype: Any = None
    options: dict[str, Any] = {}
    count: int | None = Field(default=None, ge=1)


class ProblemsModel(BaseModel):
    """The form of the whole file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    problems: list[EntryModel]
    defaults: EntryModel = EntryModel()


@dataclass(frozen=True)
class ProblemRequest:
    """A ``problem`` to tune, the 1-based ``line`` of the entry that asks for it, and how often a program runs it."""

    problem: Problem
    line: int
    count: int = 1


def load_problems(path: str | Path, lookup: Lookup | None = None) -> list[ProblemRequest]:
    """The problems of the file at ``path`` in its order, the last name of an entry varying fastest; each one once.

    Raises:
        SpaceError: the file cannot be read, or an entry is no problem that an operator of ``lookup`` knows (None: every
            operator, also those of files, ``my_ops.py:rmsnorm`` beside it).
    """
    lookup = lookup or partial(find, folder=Path(path).parent)
    located = _as_mapping(read_yaml(Path(path)))
    try:
        model = ProblemsModel.model_validate(located.data)
    except ValidationError as error:
        raise form_error(located, error, outer=ProblemsModel, inner=EntryModel) from None
    if not model.problems:
        raise located.error(("problems",), "the list is empty", _EXAMPLE)
    requests: dict[Problem, ProblemRequest] = {}
    for index, entry in enumerate(model.problems):
        for request in _Entry(located, index, entry, model.defaults, lookup).requests():
            known = requests.get(request.problem)
            requests[request.problem] = request if known is None else replace(known, count=known.count + request.count)
            if len(requests) > MAX_PROBLEMS:
                raise located.error(("problems", index), f"more than {MAX_PROBLEMS} problems", "split the file")
    return list(requests.values())


def _as_mapping(located: Located) -> Located:
    """A file that is a list of entries, as if it had the key ``problems``."""
    if located.data is None:
        raise located.error((), "the file is empty", _EXAMPLE)
    if not isinstance(located.data, list):
        return located
    lines = {("problems", *where): line for where, line in located.lines.items()}
    return Located(located.path, {"problems": located.data}, lines)


class _Entry:
    """One entry, with the defaults under it."""

    def __init__(self, located: Located, index: int, entry: EntryModel, defaults: EntryModel, lookup: Lookup) -> None:
        self.located, self.place = located, ("problems", index)
        self.entry, self.defaults, self.lookup = entry, defaults, lookup

    def requests(self) -> Iterator[ProblemRequest]:
        operator = self._operator()
        dtype = self.entry.dtype if self.entry.dtype is not None else self.defaults.dtype
        if dtype is None:
            raise self.located.error(self.place, "the key `dtype` is missing", "add it here or to `defaults`")
        shape = self._merged("shape", [item.name for item in operator.shape_parameters])
        options = self._merged("options", [item.name for item in operator.options])
        choices = [
            *(self._choices("shape", name, value) for name, value in shape.items()),
            self._choices("dtype", None, dtype),
            *(self._choices("options", name, value) for name, value in options.items()),
        ]
        if math.prod(len(values) for values in choices) > MAX_PROBLEMS:
            raise self.located.error(self.place, f"stands for more than {MAX_PROBLEMS} problems", "shorten its lists")
        for values in itertools.product(*choices):
            sizes = dict(zip(shape, values, strict=False))
            settings = dict(zip(options, values[len(shape) + 1 :], strict=True))
            try:
                problem = operator.problem(sizes, values[len(shape)], settings)
            except ProblemError as error:
                raise self.located.error(self.place, str(error)) from None
            yield ProblemRequest(problem, self.located.line(self.place), self.entry.count or self.defaults.count or 1)

    def _operator(self) -> OperatorFacts:
        name = self.entry.operator or self.defaults.operator
        if name is None:
            raise self.located.error(self.place, "the key `operator` is missing", "add it here or to `defaults`")
        try:
            return self.lookup(name)
        except ProblemError as error:
            raise self.located.error(self._where("operator"), str(error), "`tuner operators` lists them") from None

    def _merged(self, section: str, known: list[str]) -> dict[str, Any]:
        own: Mapping[str, Any] = getattr(self.entry, section)
        merged: dict[str, Any] = {**getattr(self.defaults, section), **own}
        for name in merged:
            if name not in known:
                raise self.located.error(
                    self._where(section, name), f"unknown name{did_you_mean(name, known)}", f"known: {listed(known)}"
                )
        return merged

    def _choices(self, section: str, name: str | None, value: object) -> list[Any]:
        values = value if isinstance(value, list) else [value]
        where = self._where(section, name)
        if not values:
            raise self.located.error(where, "the list is empty", "give at least one value")
        for item in values:
            if not self._fits(section, item):
                raise self._misfit(section, where, item)
        return values

    @staticmethod
    def _fits(section: str, value: object) -> bool:
        if section == "shape":
            return isinstance(value, int) and not isinstance(value, bool)
        if section == "dtype":
            return isinstance(value, str)
        return value is None or isinstance(value, bool | int | float | str)

    def _misfit(self, section: str, where: Where, value: object) -> SpaceError:
        kinds = {"shape": "a whole number", "dtype": "the name of a dtype"}
        wanted = kinds.get(section, "true/false, a number or text")
        return self.located.error(where, f"{value!r} is not {wanted}", f"write {wanted}, or a list of them")

    def _where(self, section: str, name: str | None = None) -> Where:
        """Where a value stands: in the entry, or else in the defaults."""
        tail = (section,) if name is None else (section, name)
        own = (*self.place, *tail)
        return own if own in self.located.lines else ("defaults", *tail)
