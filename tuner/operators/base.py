"""What an operator is: its problem parameters, inputs, two-pass reference, error bound and figures.

An operator never launches anything and knows no template. Modules that need torch are imported when a method that makes
tensors is called, so that listing operators and validating problems stays light.
"""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tuner.errors import ProblemError
from tuner.numerics import FORMATS, FP8, TENSOR_DTYPES
from tuner.precision import PrecisionProfile
from tuner.problem import Problem, Scalar

if TYPE_CHECKING:  # torch is heavy; only annotations need it here
    import torch

    from tuner.operators.invariants import Invariant
    from tuner.operators.reference import Reference
    from tuner.operators.variation import Variation

_DTYPE_ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "e4m3": FP8,
    "float8_e4m3fn": FP8,
}
_LARGEST_SIZE = 2**31 - 1
# The largest number of elements that one tensor of a problem may have (16 TB of bf16): beyond it the figures are typos.
LARGEST_TENSOR = 2**43


@dataclass(frozen=True)
class ShapeParameter:
    """One size of a problem. ``default``: a number, an earlier parameter's name, or None where it must be given.

    ``late``: the operator had problems before it had the parameter. A problem in which it has its default leaves it
    out, so that it stays the problem that is stored.
    """

    name: str
    description: str
    default: int | str | None = None
    minimum: int = 1
    maximum: int = _LARGEST_SIZE
    multiple_of: int = 1
    late: bool = False


@dataclass(frozen=True)
class Option:
    """One flag, number or word of a problem. ``kind`` is ``bool``, ``float`` (positive, or None), ``count`` (a whole
    number of at least 0, or None, for which -1 may be given too) or ``choice``.

    ``zero_is_off``: 0 may be given to a ``float`` too, and stands for None. ``below``: what a ``float`` must be less
    than. ``choices``: the words of a ``choice``, of
    which ``default`` is one. ``late``: the operator had problems before it had the option. A problem that has its
    default leaves it out, so that it stays the problem that is stored.
    """

    name: str
    kind: str
    default: Scalar
    description: str
    zero_is_off: bool = False
    below: float = math.inf
    choices: tuple[str, ...] = ()
    late: bool = False


@dataclass(frozen=True)
class OutputSpec:
    """How an output is allocated: its shape, format name and strides (None: contiguous).

    An output of integers (``int64``) is compared exactly: the bound of its reference is 0 (``OutputReference.exact``).
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None


class Operator(ABC):
    """What is computed. One instance per operator lives in the registry (``tuner.operators.get``).

    ``reduced_axis`` names the shape parameter that the softmax runs over; ``example_shape`` is a usual size;
    ``generic_families`` are the input families on which roundings are independent, so that the root-mean-square
    check is valid.
    """

    name: str
    summary: str
    shape_parameters: tuple[ShapeParameter, ...]
    options: tuple[Option, ...] = ()
    # What search spaces know of a problem beside its sizes and options (``facts``).
    derived_names: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = TENSOR_DTYPES
    reduced_axis: str
    example_shape: ClassVar[Mapping[str, int]]
    generic_families: tuple[str, ...] = ("randn",)
    # At the tuned shape one generic family (with the rms check) and those in which every tile decides some row; on the
    # further small shapes the generic family, and the one that shows most beyond it. None named: all.
    full_size_families: tuple[str, ...] = ()
    further_families: tuple[str, ...] = ()
    # What launch() takes: inputs, then outputs.
    tensor_names: tuple[str, ...]
    # What an error may come from that is small and everywhere.
    coarse_arithmetic: ClassVar[str] = "arithmetic that is coarser than the config's precision declares"
    # Of an operator that a user's file declares: its search space.
    space_path: Path | None = None

    def problem(self, shape: Mapping[str, int], dtype: str, options: Mapping[str, Scalar] | None = None) -> Problem:
        """A validated problem with its defaults filled in.

        Raises:
            ProblemError: a name is unknown or missing, or a value is out of its range.
        """
        sizes = self._sizes(shape)
        self._validate(sizes)
        return Problem(self.name, tuple(sizes.items()), self._dtype(dtype), self._settings(options or {}))

    def example(self) -> Problem:
        """A problem of usual size, in bf16, for listings."""
        return self.problem(self.example_shape, "bf16")

    def facts(self, problem: Problem) -> dict[str, Scalar]:
        """What a search space's expressions know of ``problem`` by name: sizes, options, and the ``derived_names``.

        Sizes and options that the problem leaves out have their defaults.
        """
        sizes = problem.sizes
        late = {p.name: sizes.get(str(p.default), p.default) for p in self.shape_parameters if p.late}
        left_out = {option.name: option.default for option in self.options if option.late}
        return {**late, **sizes, **left_out, **problem.settings}

    def _sizes(self, shape: Mapping[str, int]) -> dict[str, int]:
        known = [p.name for p in self.shape_parameters]
        _refuse_unknown(self.name, "shape parameter", shape, known)
        sizes: dict[str, int] = {}
        missing = [p.name for p in self.shape_parameters if p.default is None and p.name not in shape]
        if missing:
            usual = self.example().sizes
            raise ProblemError(
                f"{self.name} needs {', '.join(missing)}: give {'it' if len(missing) == 1 else 'them'} in the shape, "
                f"such as {','.join(f'{name}={usual[name]}' for name in missing)}"
            )
        for parameter in self.shape_parameters:
            default = sizes[parameter.default] if isinstance(parameter.default, str) else parameter.default
            value = shape.get(parameter.name, default)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ProblemError(f"{self.name}: {parameter.name} must be a whole number, but got {value!r}")
            if not parameter.minimum <= value <= parameter.maximum:
                raise ProblemError(
                    f"{self.name}: {parameter.name} must be between {parameter.minimum} and {parameter.maximum}, "
                    f"but got {value}"
                )
            if value % parameter.multiple_of:
                raise ProblemError(
                    f"{self.name}: {parameter.name} must be a multiple of {parameter.multiple_of}, but got {value}"
                )
            if not (parameter.late and value == default):
                sizes[parameter.name] = value
        return sizes

    def _dtype(self, dtype: str) -> str:
        canonical = _DTYPE_ALIASES.get(dtype, dtype)
        if canonical not in self.dtypes:
            close = difflib.get_close_matches(str(dtype), [*self.dtypes, *_DTYPE_ALIASES], n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ProblemError(f"{self.name}: dtype must be one of {', '.join(self.dtypes)}, but got {dtype!r}{hint}")
        return canonical

    def _settings(self, options: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
        _refuse_unknown(self.name, "option", options, [o.name for o in self.options])
        settings: list[tuple[str, Scalar]] = []
        for option in self.options:
            value = options.get(option.name, option.default)
            if option.kind == "bool":
                if not isinstance(value, bool):
                    raise ProblemError(f"{self.name}: {option.name} must be true or false, but got {value!r}")
            elif option.kind == "choice":
                if value not in option.choices:
                    close = difflib.get_close_matches(str(value), option.choices, n=1)
                    hint = f"; did you mean {close[0]}?" if close else ""
                    wanted = ", ".join(option.choices)
                    raise ProblemError(f"{self.name}: {option.name} must be one of {wanted}, but got {value!r}{hint}")
            elif value is not None:
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise ProblemError(f"{self.name}: {option.name} must be a number, but got {value!r}")
                value = self._count(option, value) if option.kind == "count" else self._number(option, value)
            if not (option.late and value == option.default):
                settings.append((option.name, value))
        return tuple(settings)

    def _count(self, option: Option, given: int | float) -> int | None:
        if given == -1:
            return None
        if not isinstance(given, int) or not 0 <= given <= _LARGEST_SIZE:
            raise ProblemError(
                f"{self.name}: {option.name} must be a whole number from 0 to {_LARGEST_SIZE}, but got {given!r}; "
                "-1, or leaving it out, is no limit"
            )
        return given

    def _number(self, option: Option, given: int | float) -> float | None:
        try:
            value = float(given)
        except OverflowError:  # an int of hundreds of digits is no float at all
            value = math.inf if given > 0 else -math.inf
        if option.zero_is_off and value == 0.0:
            return None
        if 0.0 < value < option.below:
            return value
        end = "finite" if option.below == math.inf else f"below {option.below:g}"
        wanted = f"{end} and at least 0 (off, as where it is left out)" if option.zero_is_off else f"positive and {end}"
        remedy = "" if option.zero_is_off else "; leave it out for its default"
        raise ProblemError(f"{self.name}: {option.name} must be {wanted}, but got {value!r}{remedy}")

    @abstractmethod
    def _validate(self, sizes: Mapping[str, int]) -> None:
        """Raise ``ProblemError`` where sizes that are each in range do not go together."""

    @abstractmethod
    def flops(self, problem: Problem) -> float:
        """Floating-point operations that the definition needs (masked work not counted)."""

    @abstractmethod
    def bytes_moved(self, problem: Problem) -> int:
        """Bytes of every input read once and every output written once."""

    @abstractmethod
    def exponentials(self, problem: Problem) -> float:
        """Exponentials that the definition needs (masked ones not counted)."""

    def uneven(self, problem: Problem) -> bool:
        """Whether parts of the output of one size take different work, as under a causal mask."""
        return bool(problem.settings.get("causal", False))

    def effort(self, problem: Problem) -> float:
        """How much the reference has to compute, in the unit of ``exponentials``: what is small is looked at first."""
        return self.exponentials(problem)

    @abstractmethod
    def families(self, problem: Problem) -> tuple[str, ...]:
        """The names of the input families that apply, the most telling first."""

    @abstractmethod
    def make_inputs(self, problem: Problem, family: str, seed: int, device: str) -> dict[str, torch.Tensor]:
        """The inputs of one family by ``launch`` name, the same for the same arguments.

        Small ones are drawn on the CPU and are then the same on every device; large ones are drawn where they live.
        Raises ``ProblemError`` on an unknown family.
        """

    @abstractmethod
    def timing_inputs(self, problem: Problem, seed: int, device: str) -> dict[str, torch.Tensor]:
        """Standard normal inputs, drawn on the device."""

    @abstractmethod
    def output_specs(self, problem: Problem) -> dict[str, OutputSpec]:
        """The outputs by ``launch`` name."""

    def launch_tensors(self, problem: Problem) -> tuple[str, ...]:
        """The names of the tensors that ``launch`` takes for ``problem``, inputs first."""
        return self.tensor_names

    @abstractmethod
    def scalars(self, problem: Problem) -> dict[str, float]:
        """The scalar arguments of ``launch`` (``{"scale": 0.0883...}``)."""

    @abstractmethod
    def reference(self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile) -> Reference:
        """What the outputs should be, in float64 by two passes, and by how much each element may differ from it."""

    def variation(self, problem: Problem, device: str, seed: int) -> Variation:
        """How the inputs of ``problem`` are changed for one trial, so that it meets numbers of its own."""
        from tuner.operators.variation import NONE

        return NONE

    def strides(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """By tensor, the strides of another layout that every kernel of this operator must take; empty for none.

        No two tensors that a kernel could take for one another have the same, and each stays in the class that Triton
        specialises on (``tuner.operators.layouts``).
        """
        return {}

    def far_strides(self, problem: Problem, small: Problem) -> dict[str, tuple[int, ...]]:
        """Strides for tensors of ``small`` that overflow 32-bit offsets where those of ``problem`` do; mostly empty."""
        from tuner.operators.layouts import far_strides

        if self.bytes_moved(problem) < 2**31 * itemsize(problem.dtype):
            return {}
        tuned = {name: (tuple(t.shape), tuple(t.stride())) for name, t in self._tensors(problem).items()}
        return far_strides(tuned, {name: tuple(t.shape) for name, t in self._tensors(small).items()})

    def _tensors(self, problem: Problem) -> dict[str, torch.Tensor]:
        """Every tensor of a launch, without values."""
        import torch

        from tuner.operators.tensors import empty

        outputs = {
            name: torch.empty_strided(spec.shape, spec.strides, device="meta")
            if spec.strides
            else empty(spec.shape, spec.dtype, "meta")
            for name, spec in self.output_specs(problem).items()
        }
        return {**self.timing_inputs(problem, 0, "meta"), **outputs}

    def invariant(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], profile: PrecisionProfile
    ) -> Invariant | None:
        """What must hold for the whole of a large output; made from generic ``inputs``. None for nothing."""
        return None

    @abstractmethod
    def classical_errors(self, problem: Problem, tiles: Mapping[str, int]) -> tuple[str, ...]:
        """The classical errors that would change the outputs of ``problem``, taken in tiles of ``tiles``."""

    @abstractmethod
    def wrong_answer(
        self, problem: Problem, inputs: Mapping[str, torch.Tensor], error: str, tiles: Mapping[str, int]
    ) -> Mapping[str, tuple[tuple[int | slice, ...], torch.Tensor]]:
        """What a kernel with one of the ``classical_errors`` would give, by output: a place, and what belongs there.

        float64, not rounded to the output's format. ``place`` indexes the output's leading axes (by slices only where
        the reference has the whole output); the rest of the output is left as it is.
        """

    @abstractmethod
    def check_problems(
        self,
        problem: Problem,
        tiles: Mapping[str, int],
        max_tiles: Mapping[str, int],
        *,
        same_binary: bool = True,
    ) -> tuple[Problem, ...]:
        """Small problems on which a config of ``problem`` is checked: ragged, and of three tiles or more where allowed.

        ``tiles``: elements per tile by shape parameter; ``max_tiles``: how many tiles a template can handle, where it
        cannot handle any number. With ``same_binary`` every integer that a launch can pass stays in the class that
        Triton specialises on (equal to 1, divisible by 16, neither), so that the binary that is timed is the one that
        is checked; without it the problems are as small as they can be, for the interpreter.
        """

    def stand_ins(
        self, problem: Problem, tiles: Mapping[str, int], max_tiles: Mapping[str, int]
    ) -> tuple[Problem, ...]:
        """Further shapes for the interpreter, where ``problem`` is never run, with something of its size each
        (``tuner.operators.stand_ins``). The last one has many programs."""
        return ()

    @abstractmethod
    def self_check(self, problem: Problem) -> str:
        """Source text of the ``if __name__ == "__main__":`` block of a standalone file of this operator.

        The file defines ``launch`` and ``CONFIG``; the block needs torch alone, prints the largest error and its
        tolerance, and exits with 1 where the result is wrong.
        """


def itemsize(dtype: str) -> int:
    """Bytes per element of a format."""
    return FORMATS[dtype].itemsize


def _refuse_unknown(operator: str, what: str, given: Iterable[str], known: list[str]) -> None:
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; it has {', '.join(known) or 'none'}"
            raise ProblemError(f"{operator} has no {what} {name!r}{hint}")
