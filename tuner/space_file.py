"""Reads a search space's YAML and refuses, with file, line, key and remedy, everything that cannot be meant.

pydantic holds the file to its form; what the names in it mean is checked afterwards, by ``_TemplateReader``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tuner.arithmetic import FUNCTIONS
from tuner.canonical import digest
from tuner.config import Value
from tuner.config_text import typed
from tuner.device import Device
from tuner.errors import ExpressionError, ProblemError, SpaceError
from tuner.expression import LITERALS, Expression
from tuner.located_yaml import Located, dotted, read_yaml
from tuner.naming import did_you_mean, listed
from tuner.numerics import EXPONENTIALS, FORMATS
from tuner.operator_lookup import Lookup, OperatorFacts
from tuner.precision import DOT_MODES, LSE_BASES, PrecisionProfile
from tuner.template_space import Clause, TemplateSpace
from tuner.yaml_form import form_error, shown

MAX_CHOICES = 256
MAX_WARPS = 32
MAX_PATH = 1000

_SCALARS = (bool, int, float, str)
_DEVICE_FACTS = frozenset(Device("", "", *([0] * 11)).facts)
_PROFILE_FIELDS = tuple(field.name for field in fields(PrecisionProfile))
_LITERAL_PRECISION: dict[str, Iterable[str]] = {
    "input": FORMATS, "output": FORMATS, "p": FORMATS, "accumulator": FORMATS, "dot": DOT_MODES, "pv_dot": DOT_MODES,
    "exponential": EXPONENTIALS, "lse_base": LSE_BASES,
}  # fmt: skip


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TemplateModel(_Strict):
    """The form of one template's entry. Scalars and expressions are looked at later, where their place is known."""

    source: str
    where: Any = None
    needs_gpu: bool = False
    switches: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    derived: dict[str, Any] = {}
    constraints: list[Any] = []
    tiles: dict[str, Any] = {}
    max_tiles: dict[str, Any] = {}
    precision: dict[str, Any] = {}
    plain: dict[str, Any] = {}


class SpaceModel(_Strict):
    """The form of the whole file."""

    operator: str
    templates: dict[str, TemplateModel]


@dataclass(frozen=True)
class SpaceFile:
    """A validated search space file. ``digest`` is a hash of what it says; comments and layout do not count."""

    path: Path
    operator: str
    digest: str
    templates: Mapping[str, TemplateSpace]


def read_space_file(path: Path, lookup: Lookup, shipped_variants: Path) -> SpaceFile:
    """Read and validate the search space at ``path``.

    ``lookup`` knows the operators; a template's ``source`` is looked for beside the file, then in ``shipped_variants``.

    Raises:
        SpaceError: the file cannot be read, or says what cannot be meant.
    """
    located = read_yaml(path)
    if located.data is None:
        raise located.error((), "the file is empty", "give it the keys `operator` and `templates`")
    try:
        model = SpaceModel.model_validate(located.data)
    except ValidationError as error:
        raise form_error(located, error, outer=SpaceModel, inner=TemplateModel) from None
    try:
        operator = lookup(model.operator)
    except ProblemError as error:
        raise located.error(("operator",), str(error), "`tuner operators` lists them") from None
    if not model.templates:
        raise located.error(("templates",), "is empty", "name at least one template")
    templates = {
        name: _TemplateReader(located, operator, name, template).read(path.parent, shipped_variants)
        for name, template in model.templates.items()
    }
    return SpaceFile(path, operator.name, digest(located.data), templates)


def _kind(value: object) -> str:
    return "true/false" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


class _TemplateReader:
    """Gives one template's entry its meaning, or says what is wrong with it."""

    def __init__(self, located: Located, operator: OperatorFacts, name: str, model: TemplateModel) -> None:
        self.located, self.operator, self.name, self.model = located, operator, name, model
        self.sizes = tuple(item.name for item in operator.shape_parameters)
        options = tuple(item.name for item in operator.options)
        derived = getattr(operator, "derived_names", ())  # of an operator that knows more than its names
        self.given = (*self.sizes, *options, *derived, "dtype", "itemsize", *sorted(_DEVICE_FACTS))

    def error(self, where: Sequence[str | int], problem: str, remedy: str = "") -> SpaceError:
        return self.located.error(("templates", self.name, *where), problem, remedy)

    def read(self, folder: Path, shipped_variants: Path) -> TemplateSpace:
        model = self.model
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", self.name):
            # The name is part of a file's name, and is written in --config.
            raise self.error((), "is no name for a template", "use at most 64 letters, digits, _ . and -")
        source = self._source(folder, shipped_variants)
        self._check_names()
        searched = {name: value for name, value in model.switches.items() if isinstance(value, list)}
        fixed = {name: value for name, value in model.switches.items() if name not in searched}
        choices = {name: self._choices(("switches", name), value) for name, value in searched.items()}
        choices |= {name: self._choices(("parameters", name), value) for name, value in model.parameters.items()}
        decided = (*self.given, *fixed)
        everything = (*self.given, *model.switches, *model.parameters, *model.derived)
        self._require_tiles()
        return TemplateSpace(
            path=self.located.path,
            line=self.located.line(("templates", self.name)),
            operator=self.operator.name,
            name=self.name,
            source=source,
            needs_gpu=model.needs_gpu,
            where=None if model.where is None else self._clause(("where",), model.where, self.given),
            choices=choices,
            searched_switches=tuple(searched),
            fixed=self._clauses("switches", fixed, self.given),
            derived=self._ordered(self._clauses("derived", model.derived, everything)),
            constraints=tuple(
                self._clause(("constraints", index), text, everything) for index, text in enumerate(model.constraints)
            ),
            tiles=self._clauses("tiles", self._only("tiles", model.tiles, self.sizes), everything),
            max_tiles=self._clauses("max_tiles", self._only("max_tiles", model.max_tiles, self.sizes), everything),
            precision=self._precision(everything),
            plain=self._plain(choices, fixed, decided),
            lines={
                name: self.located.line(("templates", self.name, section, name))
                for section in ("switches", "parameters", "derived")
                for name in getattr(model, section)
            },
        )

    def _source(self, folder: Path, shipped_variants: Path) -> Path:
        tried = [base / self.model.source for base in (folder, shipped_variants)]
        for path in tried:
            with contextlib.suppress(OSError):  # a name that is too long for any file
                if path.is_file():
                    return path
        if len(self.model.source) > MAX_PATH:
            raise self.error(
                ("source",), f"{shown(self.model.source)} is no path of a file", "name the template's file"
            )
        where = listed(dict.fromkeys(tried))
        raise self.error(("source",), f"no such file: {self.model.source}", f"looked for {where}")

    def _require_tiles(self) -> None:
        """Without the tiles of the reduced axis the check would run on a few elements, where most bugs do not show."""
        axis = self.operator.reduced_axis
        if axis and axis not in self.model.tiles:
            remedy = f"say how many elements of {axis} a tile has, as in `tiles: {{{axis}: BLOCK}}`"
            raise self.error(("tiles",), f"does not name {axis}", remedy)

    def _check_names(self) -> None:
        taken = dict.fromkeys(self.given, "a name of the problem or device")
        taken |= dict.fromkeys((*FUNCTIONS, *LITERALS), "part of the expression language")
        taken["template"] = "what a config calls its template"
        for section in ("switches", "parameters", "derived"):
            for name in getattr(self.model, section):
                if not name.isidentifier():
                    raise self.error((section, name), "is not a name", "use letters, digits and underscores")
                if name in taken:
                    raise self.error((section, name), f"the name is taken: it is {taken[name]}", "choose another name")
                taken[name] = f"one of this template's {section}"

    def _choices(self, where: tuple[str, str], values: object) -> tuple[Value, ...]:
        if not isinstance(values, list):
            raise self.error(where, f"must be a list of choices, but is {shown(values)}", "write [a, b] or [a]")
        if not values:
            raise self.error(where, "has no choices", "give at least one, or remove the key")
        if len(values) > MAX_CHOICES:
            raise self.error(where, f"has {len(values)} choices; at most {MAX_CHOICES} are searched", "thin them out")
        for index, value in enumerate(values):
            place = (*where, index)
            if not isinstance(value, _SCALARS):
                raise self.error(place, f"{shown(value)} cannot be a choice", "use numbers, true/false or text")
            if _kind(value) != _kind(values[0]):
                raise self.error(place, f"{shown(value)} is not of the kind of {shown(values[0])}", "use one kind")
            if value in values[:index]:
                raise self.error(place, f"{shown(value)} is given twice", "remove one of them")
            if isinstance(value, str) and (not value or set(value) & set(",= \t\n") or typed(value) != value):
                remedy = "use text without , = and space, that is no number and not true or false"
                raise self.error(place, f"{shown(value)} cannot be written in --config", remedy)
            if where[1] == "num_warps":
                self._check_warps(place, value)
        return tuple(values)

    def _check_warps(self, where: Sequence[str | int], value: Value) -> None:
        if not isinstance(value, int) or not 1 <= value <= MAX_WARPS or value & (value - 1):
            raise self.error(where, f"{value!r} is not a power of two from 1 to {MAX_WARPS}", "Triton takes no other")

    def _clauses(self, section: str, texts: Mapping[str, Any], known: Sequence[str]) -> dict[str, Clause]:
        return {name: self._clause((section, name), text, known) for name, text in texts.items()}

    def _clause(self, where: Sequence[str | int], text: object, known: Sequence[str]) -> Clause:
        if not isinstance(text, _SCALARS):
            raise self.error(where, f"must be an expression, but is {shown(text)}", "write it as text or a number")
        try:
            expression = Expression.parse(str(text))
        except ExpressionError as error:
            raise self.error(where, str(error), "correct the expression") from None
        for name in expression.used:
            if name not in known:
                raise self.error(
                    where, f"`{text}` names `{name}`, which is not known here{did_you_mean(name, known)}",
                    f"known: {listed(known)}",
                )  # fmt: skip
        place = ("templates", self.name, *where)
        return Clause(self.located.path, self.located.line(place), dotted(place), expression)

    def _only(self, section: str, texts: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
        for name in texts:
            if name not in known:
                raise self.error((section, name), f"unknown name{did_you_mean(name, known)}", f"known: {listed(known)}")
        return texts

    def _ordered(self, derived: dict[str, Clause]) -> dict[str, Clause]:
        done: dict[str, Clause] = {}
        waiting = dict(derived)
        while waiting:
            ready = [name for name, clause in waiting.items() if not clause.expression.names & waiting.keys()]
            if not ready:
                first = next(iter(waiting))
                raise self.error(
                    ("derived", first), f"goes in a circle with {listed(waiting)}", "let one of them need no other"
                )
            done |= {name: waiting.pop(name) for name in ready}
        return done

    def _precision(self, known: Sequence[str]) -> dict[str, Clause]:
        texts, allowed = self._only("precision", self.model.precision, _PROFILE_FIELDS), _LITERAL_PRECISION
        literal = {
            name: repr(text) for name, text in texts.items() if isinstance(text, str) and text in allowed.get(name, ())
        }
        return self._clauses("precision", {**texts, **literal}, known)

    def _plain(
        self, choices: Mapping[str, tuple[Value, ...]], fixed: Iterable[str], known: Sequence[str]
    ) -> dict[str, Value | Clause]:
        texts = self.model.plain
        for name in texts:
            if name in fixed:
                raise self.error(("plain", name), "the problem fixes this switch", "remove it from `plain`")
        self._only("plain", texts, tuple(choices))
        plain: dict[str, Value | Clause] = {}
        for name, values in choices.items():
            if name not in texts:
                raise self.error(("plain",), f"gives no value for `{name}`", f"add one of {listed(values)}")
            value = texts[name]
            if isinstance(value, _SCALARS) and _kind(value) == _kind(values[0]) and value in values:
                plain[name] = values[values.index(value)]
            elif isinstance(value, str) and not (_kind(values[0]) == "text" and value.isidentifier()):
                plain[name] = self._clause(("plain", name), value, known)
            else:
                raise self.error(("plain", name), f"{shown(value)} is not among its choices", f"use {listed(values)}")
        return plain
