"""Search spaces in the place of a list of configs: a dictionary of choices, or a search space's YAML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.autotuning.configs import OPTIONS
from tuner.autotuning.kernel_source import KernelSource
from tuner.bound_template import BoundTemplate
from tuner.canonical import canonical_json, digest
from tuner.config import Value
from tuner.device import Device
from tuner.errors import AutotuneError, ProblemError
from tuner.grid import Grid
from tuner.naming import did_you_mean, listed
from tuner.numerics import FORMATS
from tuner.problem import Problem, Scalar
from tuner.space import BoundSpace, Space, load_space
from tuner.template import Template
from tuner.template_space import TemplateSpace

Choices = Mapping[str, Sequence[Value]]


@dataclass(frozen=True)
class _Name:
    name: str


@dataclass(frozen=True)
class _KernelFacts:
    """What a search space file is told of a kernel: the names in the key, by which its expressions may go."""

    name: str
    shape_parameters: tuple[_Name, ...]
    options: tuple[_Name, ...]
    reduced_axis: str = ""

    def problem(self, shape: Mapping[str, int], dtype: str, options: Mapping[str, Scalar] | None = None) -> Problem:
        """A problem of this kernel."""
        return Problem(self.name, tuple(shape.items()), dtype, tuple((options or {}).items()))


def check_choices(choices: Choices, arg_names: Sequence[str]) -> None:
    """Raises ``AutotuneError`` where ``choices`` name what the kernel does not take, or offer nothing."""
    known = (*arg_names, *OPTIONS)
    for name, values in choices.items():
        if name not in known:
            raise AutotuneError(
                f"configs: the kernel takes no {name}{did_you_mean(name, known)}; it takes {listed(known)}"
            )
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise AutotuneError(f"configs: {name} must be a list of choices, but is {values!r}")
        for value in values:
            if not isinstance(value, bool | int | float | str):
                raise AutotuneError(f"configs: {value!r} cannot be a choice of {name}; use numbers, true/false or text")
    if not choices:
        raise AutotuneError("configs: there is nothing to choose; name a parameter of the kernel with a list of values")


def bound_choices(
    choices: Choices | Path, problem: Problem, device: Device, source: KernelSource, arg_names: Sequence[str]
) -> BoundSpace:
    """The configs that ``choices`` span for one call. The first choice of each name is the plain config.

    In a file, expressions know the key's values by name. Raises ``SpaceError`` where the file is no search space for
    this kernel, ``AutotuneError`` where its dtype is none that expressions know.
    """
    name = source.functions[0].name
    parameters = (*arg_names, *OPTIONS)

    def load(operator: str, template: str, path: Path) -> Template:
        return Template(operator, template, path, source.text, source.key, parameters)

    if isinstance(choices, Path):
        return _from_file(choices, name, problem, device, load)
    template = load(problem.operator, name, Path(source.functions[0].file))
    listed_choices = {key: tuple(dict.fromkeys(values)) for key, values in choices.items()}
    space = TemplateSpace(
        path=template.path, line=source.functions[0].first_line, operator=problem.operator, name=name,
        source=template.path, needs_gpu=False, where=None, choices=listed_choices, searched_switches=(), fixed={},
        derived={}, constraints=(), tiles={}, max_tiles={}, precision={},
        plain={key: values[0] for key, values in listed_choices.items()}, lines={},
    )  # fmt: skip
    bound = BoundTemplate(space, template, {}, {}, Grid(listed_choices, {}, (), {}))
    whole = Space(template.path, problem.operator, digest({k: list(v) for k, v in choices.items()}), {name: space})
    return BoundSpace(whole, problem, device, {}, {name: bound})


def _from_file(path: Path, kernel: str, problem: Problem, device: Device, load: object) -> BoundSpace:
    if problem.dtype not in FORMATS:
        raise AutotuneError(
            f"{path}: a search space file knows {listed(FORMATS)}, but {kernel} was given {problem.dtype}"
        )
    names = tuple(_Name(name) for name in problem.sizes)
    options = tuple(_Name(name) for name in problem.settings if name.isidentifier())
    facts = _KernelFacts(kernel, names, options)

    def lookup(name: str) -> _KernelFacts:
        if name != kernel:
            raise ProblemError(f"it is for {name}, but the kernel is called {kernel}")
        return facts

    space = load_space(path, lookup)
    bound = space.bind(
        Problem(kernel, problem.shape, problem.dtype, problem.options),
        device,
        load,  # type: ignore[arg-type]
    )
    if not bound.templates:
        reasons = "; ".join(f"{name}: {why}" for name, why in bound.refused.items())
        raise AutotuneError(f"{path}: no config is valid for {problem.label}: {reasons}")
    return bound


def choices_text(choices: Choices | Path) -> str:
    """The choices as they are stored."""
    if isinstance(choices, Path):
        return choices.read_text(encoding="utf-8")
    return canonical_json({name: list(values) for name, values in choices.items()})
