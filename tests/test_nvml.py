"""The state of the card, with NVML and torch faked."""

import sys
from types import SimpleNamespace

import pytest

from tuner.nvml import DeviceStateReader, driver_version
from tuner.trial import DeviceState


class FakeNvmlError(Exception):
    """What pynvml raises."""


class FakeNvml:
    """pynvml for one card, known by UUID ``GPU-abc`` or bus id ``00000000:41:00.0``."""

    NVMLError = FakeNvmlError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, **broken):
        self.broken = broken
        self.calls = []

    def nvmlInit(self):
        self.calls.append("init")
        if self.broken.get("init"):
            raise FakeNvmlError("library not found")

    def nvmlShutdown(self):
        self.calls.append("shutdown")

    def nvmlSystemGetDriverVersion(self):
        return b"580.159.03"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if self.broken.get("uuid") or uuid != "GPU-abc":
            raise FakeNvmlError("not found")
        return "by uuid"

    def nvmlDeviceGetHandleByPciBusId(self, bus_id):
        if bus_id != "00000000:41:00.0":
            raise FakeNvmlError("not found")
        return "by bus id"

    def nvmlDeviceGetClockInfo(self, handle, kind):
        self.calls.append(handle)
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return 61

    def nvmlDeviceGetPowerUsage(self, handle):
        if self.broken.get("power"):
            raise FakeNvmlError("not supported")
        return 512_300

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        if self.broken.get("event_reasons"):
            raise FakeNvmlError("function not found")
        return 0x1 | 0x4 | 0x40

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):
        return 0x8


@pytest.fixture
def card(monkeypatch):
    properties = SimpleNamespace(uuid="abc", pci_bus_id=0x41, pci_domain_id=0, pci_device_id=0)
    cuda = SimpleNamespace(
        is_available=lambda: True, current_device=lambda: 0, get_device_properties=lambda index: properties
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    return properties


def use(monkeypatch, fake):
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_a_read_gives_clocks_temperature_power_and_named_reasons(monkeypatch, card):
    use(monkeypatch, FakeNvml())
    with DeviceStateReader() as reader:
        assert reader.available
        assert reader.read() == DeviceState(1980, 3201, 61, 512.3, ("sw_power_cap", "hw_thermal"), "GPU-abc")


def test_a_card_unknown_by_uuid_is_found_by_its_bus_id(monkeypatch, card):
    fake = use(monkeypatch, FakeNvml(uuid=True))
    with DeviceStateReader() as reader:
        reader.read()
    assert "by bus id" in fake.calls


def test_a_value_that_the_card_does_not_offer_is_zero(monkeypatch, card):
    use(monkeypatch, FakeNvml(power=True))
    with DeviceStateReader() as reader:
        state = reader.read()
    assert (state.power_w, state.sm_clock_mhz) == (0.0, 1980)


def test_an_older_driver_is_asked_by_the_older_name(monkeypatch, card):
    use(monkeypatch, FakeNvml(event_reasons=True))
    with DeviceStateReader() as reader:
        assert reader.read().throttle_reasons == ("hw_slowdown",)


def test_nvml_is_shut_down_at_the_end(monkeypatch, card):
    fake = use(monkeypatch, FakeNvml())
    with DeviceStateReader():
        pass
    assert fake.calls == ["init", "shutdown"]


@pytest.mark.parametrize("library", [None, FakeNvml(init=True)])
def test_without_nvml_the_state_is_empty(monkeypatch, card, library):
    use(monkeypatch, library)
    with DeviceStateReader() as reader:
        assert not reader.available
        assert reader.read() == DeviceState()
    assert driver_version() == ""


def test_another_card_than_torchs_is_never_read(monkeypatch, card):
    card.uuid, card.pci_bus_id = "elsewhere", 0x99
    use(monkeypatch, FakeNvml())
    with DeviceStateReader() as reader:
        assert reader.read() == DeviceState()


def test_a_reader_that_was_not_entered_reads_nothing():
    assert DeviceStateReader().read() == DeviceState()


def test_the_driver_version_is_text(monkeypatch):
    use(monkeypatch, FakeNvml())
    assert driver_version() == "580.159.03"
