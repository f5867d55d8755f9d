"""What becomes of a config: its outcome, what the compiler and the check said, and its measurements. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from tuner.config import Config


class Outcome(StrEnum):
    """How a trial ended (the words of the documentation)."""

    PRUNED = "pruned"
    COMPILE_ERROR = "compile_error"
    OUT_OF_RESOURCES = "out_of_resources"
    WRONG = "wrong"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    TIMED = "timed"

    @property
    def final(self) -> bool:
        """Whether this outcome holds for the config on its stack for good.

        ``pruned`` does not: a config that was cut short because it was slow may be asked for again by another study.
        """
        return self is not Outcome.PRUNED


@dataclass(frozen=True)
class KernelResources:
    """What one compiled kernel takes: registers per thread, spilled and stack bytes per thread, shared bytes per
    block."""

    name: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    threads: int


@dataclass(frozen=True)
class CompileReport:
    """A finished compilation. ``binary_hash`` covers the machine code, the grid and the launch arguments.

    Two configs with one ``binary_hash`` are the same program, and are timed once. ``instructions`` counts machine
    instructions by kind, for the static estimate. ``grid`` is the first kernel's, or, where instructions are counted,
    that of the first one with matrix instructions, if there is one. ``compilations``: how many kernels the compiler was
    at, 0 where all were in its cache; None where that was not counted. It says how, not what, and is not stored.
    """

    binary_hash: str
    kernels: tuple[KernelResources, ...]
    seconds: float
    instructions: tuple[tuple[str, int], ...] = ()
    grid: tuple[int, ...] = ()
    compilations: int | None = field(default=None, compare=False)

    def as_json(self) -> dict[str, object]:
        """Plain data that ``from_json`` reads back."""
        stored = {name: value for name, value in asdict(self).items() if name != "compilations"}
        return {**stored, "instructions": dict(self.instructions)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CompileReport:
        """The inverse of ``as_json``."""
        kernels = tuple(KernelResources(**k) for k in data["kernels"])
        return cls(
            str(data["binary_hash"]),
            kernels,
            float(data["seconds"]),
            tuple(sorted(data.get("instructions", {}).items())),
            tuple(data.get("grid", ())),
        )


@dataclass(frozen=True)
class FamilyReport:
    """The check of one input family at one shape.

    ``ratio`` is the largest error over its bound (1 is the limit), ``error`` and ``bound`` are those at that element,
    ``output`` and ``where`` say which. ``problem`` is the label of the problem that was run.
    """

    family: str
    problem: str
    passed: bool
    ratio: float
    error: float
    bound: float
    output: str = ""
    where: tuple[int, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class CheckReport:
    """The check of one config: every family that ran, in order. It stops at the first family that fails.

    ``promise`` is a hash of what the check was told to hold the config to: its precision profile and its tiles. A
    verdict holds for that promise only. ``seed`` is what the families were drawn with; ``variation`` is the seed of the
    trial's own change to them (0: none), so that the two give the inputs again. ``subject``: what was checked, in
    words; ``cause``: why it is likely wrong. Both are empty but where one config or file is checked alone.
    """

    families: tuple[FamilyReport, ...]
    seed: int
    seconds: float
    mode: str = "gpu"
    promise: str = ""
    variation: int = 0
    subject: str = ""
    cause: str = ""

    @property
    def passed(self) -> bool:
        """True where at least one family ran and none failed."""
        return bool(self.families) and all(f.passed for f in self.families)

    @property
    def worst_ratio(self) -> float:
        """The largest error over its bound."""
        return max((f.ratio for f in self.families), default=float("inf"))

    @property
    def reason(self) -> str:
        """One line: which family failed, at which shape, and how. Empty where the check passed."""
        for f in self.families:
            if not f.passed:
                return f"{f.family} at {f.problem}: {f.reason}"
        return "" if self.families else "no input family ran"

    def as_json(self) -> dict[str, object]:
        """Plain data (infinities as strings) that ``from_json`` reads back."""
        rows = [
            {k: str(v) if isinstance(v, float) and v - v != 0 else v for k, v in asdict(f).items()}
            for f in self.families
        ]
        rest: dict[str, object] = {
            "seed": self.seed,
            "seconds": self.seconds,
            "mode": self.mode,
            "promise": self.promise,
        }
        rest["variation"] = self.variation
        rest |= {name: text for name, text in (("subject", self.subject), ("cause", self.cause)) if text}
        return {"families": rows, **rest}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CheckReport:
        """The inverse of ``as_json``."""
        families = tuple(
            FamilyReport(
                **{
                    **f,
                    "where": tuple(f["where"]),
                    "ratio": float(f["ratio"]),
                    "error": float(f["error"]),
                    "bound": float(f["bound"]),
                }
            )
            for f in data["families"]
        )
        words = {name: str(data.get(name, "")) for name in ("promise", "subject", "cause")}
        variation = int(data.get("variation", 0))
        return cls(families, int(data["seed"]), float(data["seconds"]), str(data["mode"]), variation=variation, **words)


@dataclass(frozen=True)
class DeviceState:
    """The card at one moment, as NVML reads it: MHz, degrees Celsius, watts, and the throttle reasons in force.

    ``gpu`` is the card's UUID: which of several GPUs it was; empty where that is not known.
    """

    sm_clock_mhz: int = 0
    memory_clock_mhz: int = 0
    temperature_c: int = 0
    power_w: float = 0.0
    throttle_reasons: tuple[str, ...] = ()
    gpu: str = ""

    def as_json(self) -> dict[str, object]:
        """Plain data; without ``gpu`` where it is not known."""
        return {name: value for name, value in asdict(self).items() if name != "gpu" or value}


@dataclass(frozen=True)
class Measurement:
    """The samples of one timed config under one timing protocol.

    ``samples_us``: microseconds per call, one a sample, in the order taken; ``rounds``: which round each belongs to;
    ``process``: which worker process each came from. ``median_us`` and its 95 % interval are derived from them. For an
    estimate, ``protocol`` is ``estimate-...`` and there is one sample.
    """

    stage: str
    protocol: str
    samples_us: tuple[float, ...]
    median_us: float
    low_us: float
    high_us: float
    rounds: tuple[int, ...] = ()
    process: tuple[int, ...] = ()
    states: tuple[DeviceState, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.samples_us:
            raise ValueError("a measurement must have at least one sample")
        bad = [s for s in self.samples_us if not (0.0 < s < float("inf"))]
        if bad:
            raise ValueError(f"samples must be positive and finite microseconds, but got {bad[0]!r}")


@dataclass(frozen=True)
class TrialRecord:
    """One config's way through the funnel, as it is stored.

    ``value_us`` is the time that the search was told (None unless the outcome is ``timed``), ``same_as`` the key of the
    config whose binary this one shares (its measurement stands for both).
    """

    config: Config
    variant_hash: str
    outcome: Outcome
    reason: str = ""
    value_us: float | None = None
    compile_report: CompileReport | None = None
    check_report: CheckReport | None = None
    measurements: tuple[Measurement, ...] = ()
    same_as: str = ""
    seed: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.TIMED) != (self.value_us is not None):
            raise ValueError(f"`value_us` goes with the outcome timed, but got {self.outcome} and {self.value_us}")
