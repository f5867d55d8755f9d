"""What a measurement ran on: the device and the software stack, as values. ``tuner.probe`` reads them off a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tuner.canonical import digest

MEASURED, ESTIMATED = "measured", "estimated"


@dataclass(frozen=True)
class Device:
    """A GPU model as tuned for. Its limits are part of its identity: H100, H200 and GH200 share an architecture only.

    ``arch`` is what Triton's ``GPUTarget`` takes (90 for sm_90, ``gfx942`` for an MI300X). Sizes are bytes, rates are
    per second. ``tensor_flops`` is the dense 16-bit matrix rate, ``fp32_flops`` the plain fp32 rate, ``exp2_rate`` the
    base-2 exponentials; the three and ``memory_bandwidth`` are data-sheet figures, used by the static estimate alone
    and therefore not part of the identity.
    """

    name: str
    backend: str
    arch: int | str
    warp_size: int
    sms: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_block: int
    shared_bytes_per_sm: int
    registers_per_block: int
    registers_per_sm: int
    threads_per_block: int
    threads_per_sm: int
    memory_bandwidth: float = 0.0
    tensor_flops: float = 0.0
    fp32_flops: float = 0.0
    exp2_rate: float = 0.0

    @property
    def key(self) -> str:
        """Identity: a hash of the name and the limits."""
        return digest(self.identity)

    @property
    def identity(self) -> dict[str, object]:
        """The name and the limits, by field."""
        return {k: v for k, v in asdict(self).items() if k not in _NOT_IDENTITY}

    @property
    def facts(self) -> dict[str, int]:
        """The names that search-space expressions may use: ``sms``, ``shared_bytes``, ``capability``, ``l2_bytes``...

        ``capability`` is 90 for sm_90 and 0 where the device is not NVIDIA's.
        """
        return {
            "sms": self.sms,
            "warp_size": self.warp_size,
            "capability": self.arch if isinstance(self.arch, int) else 0,
            "shared_bytes": self.shared_bytes_per_block,
            "registers": self.registers_per_block,
            "max_threads": self.threads_per_block,
            "l2_bytes": self.l2_bytes,
        }

    def as_json(self) -> dict[str, object]:
        """Plain data that ``from_json`` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Device:
        """The inverse of ``as_json``; unknown fields are ignored."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        return cls(**known)  # type: ignore[arg-type]


# memory_bytes: two cards of one model differ by what the firmware reserves. The rates are data-sheet figures.
_NOT_IDENTITY = ("memory_bytes", "memory_bandwidth", "tensor_flops", "fp32_flops", "exp2_rate")


@dataclass(frozen=True)
class Stack:
    """The software that a result depends on. ``mode`` is ``measured`` (on a GPU) or ``estimated`` (without one).

    ``settings`` are environment settings that change what the compiler emits or what the interpreter does.
    """

    mode: str
    triton: str
    torch: str
    compiler: str
    driver: str = ""
    runtime: str = ""
    settings: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in (MEASURED, ESTIMATED):
            raise ValueError(f"`mode` must be measured or estimated, but got {self.mode!r}")

    @property
    def key(self) -> str:
        """Identity: a hash of everything in it."""
        return digest(self.as_json())

    @property
    def label(self) -> str:
        """For people: ``Triton 3.6.0, torch 2.11.0, driver 580.159``."""
        words = [f"Triton {self.triton}", f"torch {self.torch}"]
        if self.driver:
            words.append(f"driver {self.driver}")
        return ", ".join(words)

    def as_json(self) -> dict[str, object]:
        """Plain data that ``from_json`` reads back."""
        return {**asdict(self), "settings": dict(self.settings)}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Stack:
        """The inverse of ``as_json``; unknown fields are ignored."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        settings = known.pop("settings", {})
        assert isinstance(settings, Mapping)
        return cls(**known, settings=tuple(sorted(settings.items())))  # type: ignore[arg-type]
