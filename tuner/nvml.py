"""Reads the state of an NVIDIA card (clocks, temperature, power, throttling) through NVML.

Never raises: without NVML, or for a value that a card does not offer, there is no value.
"""

from __future__ import annotations

import importlib
from types import ModuleType, TracebackType
from typing import Any

from tuner.trial import DeviceState

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h); bit 0, idle, says nothing about throttling and is left out.
THROTTLE_REASONS = {
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}


def driver_version() -> str:
    """The NVIDIA driver's version, or an empty string where NVML is missing."""
    library = _start()
    if library is None:
        return ""
    try:
        return _text(library.nvmlSystemGetDriverVersion())
    except library.NVMLError:
        return ""
    finally:
        _stop(library)


def device_names() -> tuple[str, ...]:
    """The distinct models of this machine's NVIDIA GPUs; empty where NVML is missing."""
    library = _start()
    if library is None:
        return ()
    try:
        handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(library.nvmlDeviceGetCount())]
        return tuple(dict.fromkeys(_text(library.nvmlDeviceGetName(handle)) for handle in handles))
    except library.NVMLError:
        return ()
    finally:
        _stop(library)


class DeviceStateReader:
    """Reads one card's state between samples: ``with DeviceStateReader() as reader: state = reader.read()``.

    ``device_index`` is torch's index (the current device by default); NVML numbers cards differently, so the card is
    found by its UUID, or by its PCI bus id. Where that fails, every ``read()`` is the empty ``DeviceState()``.
    """

    def __init__(self, device_index: int | None = None) -> None:
        self._index = device_index
        self._nvml: ModuleType | None = None
        self._handle: Any = None
        self._uuid = ""

    def __enter__(self) -> DeviceStateReader:
        self._nvml = _start()
        if self._nvml is not None:
            self._handle = _handle(self._nvml, _properties(self._index))
            self._uuid = card_uuid(self._index)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._nvml is not None:
            _stop(self._nvml)
        self._nvml = self._handle = None

    @property
    def available(self) -> bool:
        """Whether ``read()`` reads a card."""
        return self._handle is not None

    def read(self) -> DeviceState:
        """The card now. A value that the card does not offer is 0."""
        if self._nvml is None or self._handle is None:
            return DeviceState()
        library = self._nvml
        return DeviceState(
            sm_clock_mhz=int(self._ask("nvmlDeviceGetClockInfo", library.NVML_CLOCK_SM)),
            memory_clock_mhz=int(self._ask("nvmlDeviceGetClockInfo", library.NVML_CLOCK_MEM)),
            temperature_c=int(self._ask("nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU)),
            power_w=self._ask("nvmlDeviceGetPowerUsage") / 1000.0,
            throttle_reasons=self._throttle_reasons(),
            gpu=self._uuid,
        )

    def _ask(self, function: str, *arguments: object) -> float:
        assert self._nvml is not None
        try:
            return float(getattr(self._nvml, function)(self._handle, *arguments))
        except (self._nvml.NVMLError, AttributeError):
            return 0.0

    def _throttle_reasons(self) -> tuple[str, ...]:
        # Drivers before 535 know the call by its older name.
        bits = int(self._ask("nvmlDeviceGetCurrentClocksEventReasons")) or int(
            self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        )
        return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def card_uuid(index: int | None = None) -> str:
    """The UUID of the GPU as NVML has it, ``GPU-...``; empty where torch does not tell (or there is no GPU)."""
    uuid = getattr(_properties(index), "uuid", None)
    return "" if uuid is None else f"GPU-{uuid}"


def _start() -> ModuleType | None:
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError:
        return None
    return library


def _stop(library: ModuleType) -> None:
    try:
        library.nvmlShutdown()
    except library.NVMLError:
        return


def _properties(index: int | None) -> Any:
    """torch's properties of the device, or None where torch has no GPU."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)


def _handle(library: Any, properties: Any) -> Any:
    """NVML's handle of the card with these torch properties, or None."""
    if properties is None:
        return None
    uuid = getattr(properties, "uuid", None)
    if uuid is not None:
        for prefix in ("GPU-", "MIG-"):
            try:
                return library.nvmlDeviceGetHandleByUUID(f"{prefix}{uuid}")
            except library.NVMLError:
                continue
    if getattr(properties, "pci_bus_id", None) is not None:
        domain = getattr(properties, "pci_domain_id", 0)
        bus_id = f"{domain:08x}:{properties.pci_bus_id:02x}:{getattr(properties, 'pci_device_id', 0):02x}.0"
        try:
            return library.nvmlDeviceGetHandleByPciBusId(bus_id)
        except library.NVMLError:
            return None
    return None


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
