"""Search spaces: what may be tried for an operator, and, bound to a problem and a device, which configs there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tuner import operators, shipped
from tuner.bound_template import BoundTemplate
from tuner.canonical import digest
from tuner.config import Config, Value
from tuner.config_text import parse_config_text
from tuner.device import Device
from tuner.errors import ConfigError, ProblemError, SpaceError
from tuner.grid import Count
from tuner.naming import did_you_mean, listed
from tuner.numerics import FORMATS
from tuner.operator_lookup import Facts, Lookup, sizes_and_options
from tuner.precision import PrecisionProfile
from tuner.problem import Problem, Scalar
from tuner.template import Template, load_template
from tuner.template_space import TemplateSpace
from tuner.triton_api import lacking

__all__ = ["BoundSpace", "Space", "TemplateSpace", "load_space"]

TemplateLoader = Callable[[str, str, Path], Template]


def load_space(source: str | Path, lookup: Lookup = operators.get, variants: Path | None = None) -> Space:
    """The search space of an operator (its name), or the one in a YAML file (a path).

    A path is a ``Path``, or text with a folder or a ``.yaml`` or ``.yml`` ending. ``lookup`` and ``variants`` say where
    operators and shipped template sources come from.

    Raises:
        SpaceError: the file cannot be read, or is no valid search space.
        ProblemError: ``source`` is a name that no operator has.
    """
    from tuner.space_file import read_space_file  # pydantic and PyYAML are heavy

    file = read_space_file(_path(source, lookup), lookup, variants or shipped.variants_dir())
    facts = getattr(lookup(file.operator), "facts", sizes_and_options)  # an operator may know more than its names
    return Space(file.path, file.operator, file.digest, file.templates, facts)


def _path(source: str | Path, lookup: Lookup) -> Path:
    if isinstance(source, Path):
        return source
    if Path(source).name != source or source.endswith((".yaml", ".yml")):
        return Path(source)
    operator = lookup(source)
    name, own = operator.name, getattr(operator, "space_path", None)  # a user's operator names its own
    path = own or shipped.search_spaces_dir() / f"{name}.yaml"
    if not path.is_file():
        raise SpaceError(path, 0, "", f"no search space is shipped for {name}", "name a YAML file of your own")
    return path


@dataclass(frozen=True, eq=False)
class Space:
    """A search space as read from ``path``. ``digest`` is a hash of what the file says; ``facts`` gives what its
    expressions know of a problem."""

    path: Path
    operator: str
    digest: str
    templates: Mapping[str, TemplateSpace]
    facts: Facts = sizes_and_options

    def bind(
        self,
        problem: Problem,
        device: Device,
        load: TemplateLoader = load_template,
        *,
        gpu: bool = True,
        triton_version: str | None = None,
    ) -> BoundSpace:
        """This space for one problem on one device; ``load`` reads template sources.

        Without a ``gpu`` to check on, templates that need one are refused, and where ``triton_version`` is given, those
        that it cannot express.

        Raises:
            ProblemError: the problem is another operator's.
            SpaceError: an expression has no value, or a template's launch() does not fit its entry.
            TemplateError: a template cannot be read.
        """
        if problem.operator != self.operator:
            raise ProblemError(f"{self.path} is a search space for {self.operator}, not for {problem.operator}")
        given: dict[str, Scalar] = {
            **self.facts(problem),
            "dtype": problem.dtype,
            "itemsize": FORMATS[problem.dtype].itemsize,
            **device.facts,
        }
        bound: dict[str, BoundTemplate] = {}
        refused: dict[str, str] = {}
        for name, template in self.templates.items():
            where = template.where
            if template.needs_gpu and not gpu:
                refused[name] = "needs a GPU: the interpreter cannot run it"
                continue
            if where is not None and not where.holds(given):
                seen = where.expression.shown_values(given)
                refused[name] = f"where: {where.text} is false{f' ({seen})' if seen else ''}"
                continue
            source = load(self.operator, name, template.source)
            missing = lacking(source.source, triton_version) if triton_version else None
            if missing is not None:
                refused[name] = missing
                continue
            candidate = BoundTemplate.bind(template, source, given)
            if candidate.plain is None:
                refused[name] = candidate.why_none()
            else:
                bound[name] = candidate
        return BoundSpace(self, problem, device, refused, bound)


@dataclass(frozen=True, eq=False)
class BoundSpace:
    """The configs of a space for one problem on one device. ``refused`` says why a template is not in ``templates``."""

    space: Space
    problem: Problem
    device: Device
    refused: Mapping[str, str]
    bound: Mapping[str, BoundTemplate]

    @property
    def templates(self) -> tuple[str, ...]:
        """The templates that have valid configs, in the file's order."""
        return tuple(self.bound)

    @cached_property
    def digest(self) -> str:
        """A hash of what the file says and of the applicable templates' sources."""
        return digest([self.space.digest, {name: bound.template.hash for name, bound in self.bound.items()}])

    def domain(self, template: str) -> dict[str, tuple[Value, ...]]:
        """The searched names, switches before parameters, with the choices that are not refused on their own."""
        return dict(self._of(template).grid.domain)

    def size(self) -> int:
        """How many valid configs there are."""
        return sum(count.valid for count in self._counts)

    def combinations(self) -> int:
        """How many combinations of choices there are in the applicable templates, before constraints."""
        return sum(bound.space.combinations for bound in self.bound.values())

    def refusals(self) -> dict[str, int]:
        """By constraint, how many combinations it refused before any other did: ``combinations() - size()`` in all."""
        refusals: dict[str, int] = {}
        for count in self._counts:
            for text, number in count.refused.items():
                refusals[text] = refusals.get(text, 0) + number
        return refusals

    @cached_property
    def _counts(self) -> tuple[Count, ...]:
        return tuple(bound.grid.count() for bound in self.bound.values())

    def configs(self) -> Iterator[Config]:
        """Every valid config, in the file's order, the last name varying fastest."""
        for bound in self.bound.values():
            for values in bound.grid.valid():
                yield bound.build(values)

    def config(self, template: str, chosen: Mapping[str, Value]) -> Config:
        """The config of ``template`` with ``chosen`` for every searched name; what follows from them may be repeated.

        Raises:
            ConfigError: a name is missing or unknown, a value is not a choice, or a constraint (named) refuses them.
        """
        return self._of(template).config(chosen)

    def is_valid(self, template: str, chosen: Mapping[str, Value]) -> bool:
        """Whether ``config`` would give one."""
        return template in self.bound and self.bound[template].is_valid(chosen)

    def plain(self) -> tuple[Config, ...]:
        """The plain config of each applicable template, or the valid config nearest to it."""
        return tuple(self._plain(name) for name in self.bound)

    def nearest(self, config: Config) -> Config | None:
        """The valid config of ``config``'s template that differs from it in the fewest names, by as little as possible.

        What ``config`` has no value for is as in the plain config. None where the template does not apply.
        """
        if config.template not in self.bound:
            return None
        bound = self.bound[config.template]
        plain = self._plain(config.template).values
        values = bound.grid.nearest({name: config.values.get(name, plain[name]) for name in bound.space.choices})
        return None if values is None else bound.build(values)

    def parse(self, text: str) -> Config:
        """The config that ``template=online,BLOCK_COLS=4096`` names; what it does not name is as in the plain config.

        Without ``template=`` the first applicable template is meant.

        Raises:
            ConfigError: the text cannot be read, or is not in this space.
        """
        words = parse_config_text(text)
        if not self.bound:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.refused.items())
            raise ConfigError(f"no template of {self.space.operator} applies to {self.problem.label}: {reasons}")
        name = words.pop("template", self.templates[0])
        bound = self._of(str(name))
        plain = self._plain(str(name)).values
        return bound.config({**{key: plain[key] for key in bound.space.choices}, **words})

    def precision(self, config: Config) -> PrecisionProfile:
        """The arithmetic that ``config`` declares, for the error bound."""
        return self._of(config.template).precision(config, self.problem.dtype, self.problem.sizes)

    def tiles(self, config: Config) -> dict[str, int]:
        """By shape parameter, how much of it one tile covers."""
        return self._of(config.template).tiles(config)

    def max_tiles(self, config: Config) -> dict[str, int]:
        """By shape parameter, the most tiles that the template can have (1 for a whole row in one tile)."""
        return self._of(config.template).max_tiles(config)

    def template(self, config: Config) -> Template:
        """The template of ``config``."""
        return self._of(config.template).template

    def launch_arguments(self, config: Config) -> dict[str, Value]:
        """What the rendered variant's launch() takes of ``config``; its switches are fixed in the source."""
        return self._of(config.template).launch_arguments(config)

    def _plain(self, template: str) -> Config:
        plain = self.bound[template].plain
        assert plain is not None  # `bind` refuses a template without one
        return plain

    def _of(self, template: str) -> BoundTemplate:
        if template in self.bound:
            return self.bound[template]
        if template in self.refused:
            raise ConfigError(f"template {template} does not apply to {self.problem.label}: {self.refused[template]}")
        raise ConfigError(
            f"{self.space.operator} has no template `{template}`{did_you_mean(template, self.space.templates)}; "
            f"known: {listed(self.space.templates)}"
        )
