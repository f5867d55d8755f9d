"""An ``Operator`` made of what a user's file declares."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import ExpressionError, ProblemError
from tuner.expression import Expression
from tuner.operators.base import LARGEST_TENSOR, Operator, Option, OutputSpec, ShapeParameter
from tuner.own_operators.declaration import OwnOperator, Work, itemsize
from tuner.own_operators.shapes import elements, shape_of
from tuner.own_operators.small_shapes import small_shapes
from tuner.precision import PrecisionProfile
from tuner.problem import Problem, Scalar

if TYPE_CHECKING:
    import torch

    from tuner.operators.reference import Reference

_NAME_DIGITS = 12
_DEEP_TILES = 16  # of the reduced size, where a tile may take long


class DeclaredOperator(Operator):
    """What ``path`` declares. Its ``name`` ends in the hash of the declaration, so that results of another one are
    results of another operator.

    ``digest``: the SHA-256, in hex, of what the declaration needs of its file; the kernels are not part of it.
    """

    coarse_arithmetic = (
        "arithmetic that is coarser than declared; if it is a fast tanh, exp or such, and accepted, declare its error, "
        "as in functions={'tanh': 2.0**-10.5}"
    )

    def __init__(self, declared: OwnOperator, path: Path, digest: str) -> None:
        self.declared, self.path, self.digest = declared, path, digest
        self.name = f"{declared.name}@{digest[:_NAME_DIGITS]}"
        self.summary = declared.summary
        self.shape_parameters = tuple(
            ShapeParameter(name, size.description, minimum=size.minimum, multiple_of=size.multiple_of)
            for name, size in declared.parameters.items()
        )
        self.options = tuple(
            Option(name, "float", float(value), "a number that launch() takes")
            for name, value in declared.numbers.items()
        )
        self.dtypes = declared.dtypes
        self.reduced_axis = declared.reduced
        self.space_path = path.parent / declared.space
        self.full_size_families = self.further_families = tuple(
            f for f in ("randn", *list(declared.families)[:1], "spiky") if f not in declared.without
        )[:2]
        self.tensor_names = tuple(declared.tensors)
        self._rehearsed: set[str] = set()

    def example(self) -> Problem:
        sizes = {name: size.example for name, size in self.declared.parameters.items()}
        return super().problem(sizes, self.dtypes[0])

    def problem(self, shape: Mapping[str, int], dtype: str, options: Mapping[str, Scalar] | None = None) -> Problem:
        """As of every operator. The file's functions are tried on a small problem first, once a dtype.

        Raises:
            ProblemError: also where one of them fails, with its file and line.
        """
        made = super().problem(shape, dtype, options)
        if made.dtype not in self._rehearsed:
            self._rehearsed.add(made.dtype)
            try:
                self._rehearse(made)
            except ProblemError:
                self._rehearsed.discard(made.dtype)
                raise
        return made

    def _validate(self, sizes: Mapping[str, int]) -> None:
        for text in self.declared.requires:
            try:
                holds = Expression.parse(text).evaluate(sizes)
            except ExpressionError as error:
                raise ProblemError(f"{self.path}: {self.declared.name}: requires: {error}") from None
            if not holds:
                seen = Expression.parse(text).shown_values(sizes)
                raise ProblemError(f"{self.declared.name}: `{text}` is false ({seen}); choose other sizes")
        for name, spec in self.declared.tensors.items():
            if elements(spec, sizes) > LARGEST_TENSOR:
                raise ProblemError(f"{self.declared.name}: {name} must have at most {LARGEST_TENSOR} elements")

    def work(self, problem: Problem) -> Work:
        """What the file says that ``problem`` costs."""
        found = self.call("work", self.declared.work, (problem.sizes,), {})
        if not isinstance(found, Work):
            raise ProblemError(
                f"{self.path}: {self.declared.name}: work() gave {found!r}; return tuner.Work(flops=...)"
            )
        return found

    def flops(self, problem: Problem) -> float:
        return float(self.work(problem).flops)

    def bytes_moved(self, problem: Problem) -> int:
        said = self.work(problem).bytes_moved
        if said is not None:
            return int(said)
        specs = self.declared.tensors.values()
        return sum(elements(spec, problem.sizes) * itemsize(spec.dtype or problem.dtype) for spec in specs)

    def exponentials(self, problem: Problem) -> float:
        return float(self.work(problem).exponentials)

    def effort(self, problem: Problem) -> float:
        return max(self.flops(problem), float(sum(elements(s, problem.sizes) for s in self.declared.tensors.values())))

    def families(self, problem: Problem) -> tuple[str, ...]:
        from tuner.own_operators.inputs import names

        return names(self.declared)

    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.own_operators.inputs import make

        made: dict[str, torch.Tensor] = self.call("draw", make, (self.declared, problem, family, seed, device), {})
        return made

    def timing_inputs(self, problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
        from tuner.own_operators.inputs import normal

        made: dict[str, torch.Tensor] = self.call("draw", normal, (self.declared, problem, seed, device), {})
        return made

    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        specs = self.declared.tensors
        return {
            name: OutputSpec(shape_of(specs[name], problem.sizes), specs[name].dtype or problem.dtype)
            for name in self.declared.outputs
        }

    def scalars(self, problem: Problem) -> dict[str, float]:
        return {name: float(str(value)) for name, value in problem.options}

    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        """The declared reference and bound, of a selection along the independent axis where there is much of it."""
        from tuner.own_operators.bound import reference, selection

        specs, along, chosen = self.output_specs(problem), self.declared.independent, None
        if along is not None:
            chosen = selection(problem.sizes[along], max(math.prod(spec.shape) for spec in specs.values()))
        # An output whose dtype the file fixes keeps it; the others have what the config declares.
        formats = {n: self.declared.tensors[n].dtype or profile.output for n in specs}
        return reference(
            self.declared, self.call, problem.settings, problem.sizes[self.reduced_axis], formats, inputs, profile,
            selected=chosen,
        )  # fmt: skip

    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        from tuner.own_operators.wrong_answers import names

        shapes = {name: spec.shape for name, spec in self.output_specs(problem).items()}
        return names(self.declared, problem.sizes, shapes, self._tile(problem, tiles))

    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> dict[str, tuple[tuple[int, ...], torch.Tensor]]:
        from tuner.own_operators.bound import answers
        from tuner.own_operators.wrong_answers import answer

        def at(tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
            return answers(self.declared, self.call, "reference", (), {**tensors, **problem.settings})

        found = answer(self.declared, at, inputs, error, self._tile(problem, tiles))
        return {name: ((), wrong) for name, wrong in found.items()}

    def check_problems(
        self,
        problem: Problem,
        tiles: Mapping[str, int],
        max_tiles: Mapping[str, int],
        *,
        same_binary: bool = True,
    ) -> tuple[Problem, ...]:
        shapes = small_shapes(
            self.declared.parameters, problem.sizes, self.reduced_axis, tiles, max_tiles, same_binary=same_binary
        )
        return self._possible(shapes, problem) or (problem,)

    def stand_ins(
        self, problem: Problem, tiles: Mapping[str, int], max_tiles: Mapping[str, int]
    ) -> tuple[Problem, ...]:
        """The tuned reduced size, or what it leaves after whole tiles; and many of what is independent."""
        from tuner.operators.stand_ins import crowd, like

        sizes, declared = problem.sizes, self.declared
        small = [at.sizes for at in self.check_problems(problem, tiles, max_tiles, same_binary=False)]
        deep = like(sizes[self.reduced_axis], self._tile(problem, tiles), _DEEP_TILES)
        shapes = [{**small[-1], self.reduced_axis: deep}]
        if declared.independent is not None and not declared.parameters[declared.independent].fixed:
            shortest = min(small, key=lambda at: at[self.reduced_axis])
            shapes.append({**shortest, declared.independent: crowd(sizes[declared.independent])})
        return self._possible([shape for shape in shapes if shape not in small], problem)

    def _possible(self, shapes: Sequence[Mapping[str, int]], problem: Problem) -> tuple[Problem, ...]:
        found = []
        for shape in shapes:
            try:
                found.append(super().problem(shape, problem.dtype, problem.settings))
            except ProblemError:  # sizes that do not go together; the tuned ones do
                continue
        return tuple(found)

    def self_check(self, problem: Problem) -> str:
        from tuner.own_operators.self_check import self_check  # which needs libcst, for quoting

        return self_check(self, problem)

    @cached_property
    def source(self) -> str:
        """The text of the file."""
        return self.path.read_text(encoding="utf-8")

    def call(self, what: str, function: Callable[..., Any], given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """``function(*given, **named)``. Whatever a function of the file raises becomes a ``ProblemError`` with its
        place."""
        try:
            return function(*given, **named)
        except (ProblemError, MemoryError):
            raise
        except Exception as error:  # a stranger's function, and any way in which it can fail
            raise ProblemError(f"{where(error, self.path)}: {what}() {described(error)}") from error

    def _tile(self, problem: Problem, tiles: Mapping[str, int]) -> int:
        return max(1, tiles.get(self.reduced_axis, problem.sizes[self.reduced_axis]))

    def _rehearse(self, problem: Problem) -> None:
        """Call everything of the file once, on a few elements, and look at what it gives."""
        from tuner.own_operators.rehearsal import rehearse

        self.work(problem)
        rehearse(self, problem)


def where(error: BaseException, path: Path) -> str:
    """``FILE:LINE`` of the last statement of ``path`` that ran before ``error``; the file alone where none did."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(path)]
    if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno:
        lines.append(error.lineno)
    return f"{path}:{lines[-1]}" if lines else str(path)


def described(error: BaseException) -> str:
    """``raised ValueError: ...``, in one line."""
    text = " ".join(str(error).split())[:300]
    return f"raised {type(error).__name__}{f': {text}' if text else ''}; correct the file"
