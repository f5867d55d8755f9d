"""One template of a search space, bound to a problem and a device: its configs, and what each of them implies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tuner.config import Config, Value
from tuner.errors import ConfigError, SpaceError
from tuner.grid import Grid, nearest_choice
from tuner.naming import did_you_mean, listed
from tuner.numerics import output_dtype
from tuner.precision import PrecisionProfile
from tuner.problem import Scalar
from tuner.template import Template
from tuner.template_space import Clause, TemplateSpace

_FLAGS = ("prescaled", "l_from_rounded_p", "atomics")  # the fields of PrecisionProfile that are true or false


@dataclass(frozen=True, eq=False)
class BoundTemplate:
    """``constants`` are the problem's and the device's names, and the switches that the problem fixes (``fixed``)."""

    space: TemplateSpace
    template: Template
    constants: Mapping[str, Scalar]
    fixed: Mapping[str, Value]
    grid: Grid

    @classmethod
    def bind(cls, space: TemplateSpace, template: Template, given: Mapping[str, Scalar]) -> BoundTemplate:
        """Bind ``space`` to the names ``given`` by problem and device.

        Raises:
            SpaceError: the space and the launch() of ``template`` do not fit together, or an expression has no value.
        """
        _check_launch(space, template)
        fixed = {name: clause.value(given) for name, clause in space.fixed.items()}
        constants = {**given, **fixed}
        grid = Grid(space.choices, space.derived, space.constraints, constants)
        return cls(space, template, constants, fixed, grid)

    @cached_property
    def plain(self) -> Config | None:
        """The plain config, or the valid one nearest to it; None where the template has no valid config at all."""
        wanted: dict[str, Value] = {}
        for name, choices in self.space.choices.items():
            given = self.space.plain[name]
            value = given.value(self.constants) if isinstance(given, Clause) else given
            choice = nearest_choice(choices, value)
            if choice is None:
                assert isinstance(given, Clause)  # a value was looked at when the file was read
                given.fail(f"gives {value!r}", f"it must be one of the choices {listed(choices)}", self.constants)
            wanted[name] = choice
        values = self.grid.nearest(wanted)
        return None if values is None else self.build(values)

    def why_none(self) -> str:
        """For a template without a valid config: the constraint that refuses most."""
        refused = self.grid.count().refused
        if not refused:
            return "no valid config"
        most = max(self.space.constraints, key=lambda clause: refused[clause.text])
        seen = most.expression.shown_values(self.constants)
        share = "all" if refused[most.text] == self.space.combinations else "most"
        return f"no valid config: `{most.text}` refuses {share} of them{f' ({seen})' if seen else ''}"

    def config(self, chosen: Mapping[str, Value]) -> Config:
        """The config with ``chosen`` for the searched names.

        Raises:
            ConfigError: a name is missing or unknown, a value is not a choice, or a constraint refuses them.
        """
        values = self._values(chosen)
        broken = self.grid.violated(values)
        if broken is not None:
            clause, seen = broken
            raise ConfigError(f"template {self.space.name}: `{clause.text}` is false ({seen})")
        return self.build(values)

    def is_valid(self, chosen: Mapping[str, Value]) -> bool:
        """Whether ``config`` would give one."""
        try:
            return self.grid.violated(self._values(chosen)) is None
        except ConfigError:
            return False

    def build(self, values: Mapping[str, Value]) -> Config:
        """The config of ``values``, which are known to be valid."""
        environment = self.grid.environment(values)
        switches: dict[str, Value] = {**self.fixed, **{name: values[name] for name in self.space.searched_switches}}
        launch = {name: value for name, value in values.items() if name not in switches}
        launch |= {name: clause.value(environment) for name, clause in self.space.derived.items()}
        return Config(
            self.space.name, tuple(sorted(switches.items())), tuple(sorted(launch.items())), tuple(self.space.choices)
        )

    def environment(self, config: Config) -> dict[str, Scalar]:
        """Every name that this template's expressions know, with its value under ``config``."""
        values = config.values
        missing = [name for name in self.space.choices if name not in values]
        if missing:
            raise ConfigError(f"{config.label}: gives no value for {listed(missing)}; it is of another search space")
        return self.grid.environment({name: values[name] for name in self.space.choices})

    def tiles(self, config: Config) -> dict[str, int]:
        environment = self.environment(config)
        return {name: clause.size(environment) for name, clause in self.space.tiles.items()}

    def max_tiles(self, config: Config) -> dict[str, int]:
        environment = self.environment(config)
        return {name: clause.size(environment) for name, clause in self.space.max_tiles.items()}

    def precision(self, config: Config, dtype: str, sizes: Mapping[str, int]) -> PrecisionProfile:
        """The arithmetic that ``config`` declares; ``tiles`` is by default the tiles along the last tiled axis."""
        environment = self.environment(config)
        profile: dict[str, Scalar] = {"input": dtype, "output": output_dtype(dtype)}
        for name, size in list(self.tiles(config).items())[-1:]:
            profile["tiles"] = -(-sizes[name] // size)
        for name, clause in self.space.precision.items():
            read = clause.size if name == "tiles" else clause.holds if name in _FLAGS else clause.value
            profile[name] = read(environment)
        try:
            return PrecisionProfile(**profile)  # type: ignore[arg-type]
        except ValueError as error:
            clauses = self.space.precision
            line = next((clause.line for name, clause in clauses.items() if f"`{name}`" in str(error)), self.space.line)
            key = f"templates.{self.space.name}.precision"
            raise SpaceError(self.space.path, line, key, f"{error} ({config.label})") from None

    def launch_arguments(self, config: Config) -> dict[str, Value]:
        """What the rendered variant's launch() takes of ``config``, in its order. Switches are fixed in the source."""
        launch = dict(config.launch)
        return {name: launch[name] for name in self.template.launch_parameters if name in launch}

    def _values(self, chosen: Mapping[str, Value]) -> dict[str, Value]:
        """``chosen`` in the space's order and in its choices' types; fixed and derived names may be repeated."""
        space = self.space
        known = (*space.choices, *space.fixed, *space.derived)
        for name in chosen:
            if name not in known:
                raise ConfigError(
                    f"template {space.name} has no parameter `{name}`{did_you_mean(name, known)}; "
                    f"known: {listed(known)}"
                )
        missing = [name for name in space.choices if name not in chosen]
        if missing:
            raise ConfigError(f"template {space.name}: no value for {listed(missing)}")
        values: dict[str, Value] = {}
        for name, choices in space.choices.items():
            value = _same(choices, chosen[name])
            if value is None:
                raise ConfigError(
                    f"template {space.name}: {name}={chosen[name]!r} is not in the search space; "
                    f"its choices are {listed(choices)}"
                )
            values[name] = value
        if chosen.keys() - space.choices.keys():
            self._check_implied(chosen, values)
        return values

    def _check_implied(self, chosen: Mapping[str, Value], values: Mapping[str, Value]) -> None:
        environment = self.grid.environment(values)
        for name, clause in (*self.space.fixed.items(), *self.space.derived.items()):
            if name in chosen and chosen[name] != environment[name]:
                raise ConfigError(
                    f"template {self.space.name}: {name} is {environment[name]!r} here (it follows from "
                    f"`{clause.text}`), not {chosen[name]!r}; leave it out"
                )


def _same(choices: tuple[Value, ...], value: Value) -> Value | None:
    for choice in choices:
        if choice == value and isinstance(choice, bool) is isinstance(value, bool):
            return choice
    return None


def _check_launch(space: TemplateSpace, template: Template) -> None:
    """Hold the space's names against those of launch(): a name that does nothing would be searched for nothing."""
    taken = template.launch_parameters
    for name in space.switches:
        if name not in taken:
            problem = f"launch() of {template.path.name} has no such parameter{did_you_mean(name, taken)}"
            raise space.error("switches", name, problem, "name a tl.constexpr switch that launch() takes")
    used = {name for clause in space.expressions for name in clause.expression.used}
    for name in space.choices:
        if name not in taken and name not in used:
            problem = f"launch() of {template.path.name} does not take it, and no expression uses it"
            raise space.error("parameters", name, problem, "remove it, or use it")
