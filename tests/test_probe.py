"""Reading the device and the software stack, with torch's properties faked."""

import sys
from types import SimpleNamespace

import pytest

from tuner import nvml, probe, toolchain
from tuner.errors import MissingError
from tuner.targets import target

H200 = SimpleNamespace(
    name="NVIDIA H200",
    major=9,
    minor=0,
    total_memory=150109880320,
    multi_processor_count=132,
    L2_cache_size=62914560,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    warp_size=32,
)

MI300X = SimpleNamespace(
    name="AMD Instinct MI300X",
    major=9,
    minor=4,
    gcnArchName="gfx942:sramecc+:xnack-",
    total_memory=206141652992,
    multi_processor_count=304,
    L2_cache_size=4194304,
    shared_memory_per_block=65536,
    shared_memory_per_multiprocessor=65536,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    warp_size=64,
)


@pytest.mark.parametrize(("properties", "is_hip", "name"), [(H200, False, "h200"), (MI300X, True, "mi300x")])
def test_a_known_card_has_the_key_of_its_target(properties, is_hip, name):
    device = probe.device_from_properties(properties, is_hip)
    assert device.key == target(name).key
    assert device.exp2_rate == target(name).exp2_rate
    assert device.memory_bytes == properties.total_memory


def test_an_older_torch_without_the_opt_in_property_gets_the_limit_of_the_architecture():
    old = SimpleNamespace(name="NVIDIA A10", major=8, minor=6, total_memory=1, multi_processor_count=72)
    assert probe.device_from_properties(old, is_hip=False).shared_bytes_per_block == 101376


def test_an_unknown_card_keeps_what_the_driver_says_and_has_no_rates():
    card = SimpleNamespace(**{**vars(H200), "name": "NVIDIA H20", "multi_processor_count": 78})
    device = probe.device_from_properties(card, is_hip=False)
    assert (device.sms, device.shared_bytes_per_block, device.memory_bandwidth) == (78, 232448, 0.0)


def test_a_rocm_architecture_is_named_without_its_features():
    assert probe.device_from_properties(MI300X, is_hip=True).arch == "gfx942"


def test_without_a_gpu_there_is_no_device(monkeypatch):
    fake = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", fake)
    assert probe.current_device() is None


def test_the_device_is_read_from_the_current_gpu(monkeypatch):
    cuda = SimpleNamespace(
        is_available=lambda: True,
        current_device=lambda: 1,
        get_device_properties=lambda index: {0: MI300X, 1: H200}[index],
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=None)))
    device = probe.current_device()
    assert device is not None and device.name == "NVIDIA H200"


def test_an_estimate_depends_on_the_compiler_and_not_on_the_driver(monkeypatch):
    monkeypatch.setattr(nvml, "driver_version", lambda: "580.1")
    stack = probe.current_stack("estimated", target("h200"))
    assert stack.compiler == f"ptxas {toolchain.ptxas_version(toolchain.ptxas_path(90))}"
    assert stack.compiler.count(".") == 2
    assert stack.triton == toolchain.triton_version()
    assert (stack.driver, stack.runtime) == ("", "")


def test_a_measurement_names_driver_and_runtime(monkeypatch):
    monkeypatch.setattr(nvml, "driver_version", lambda: "580.1")
    fake = SimpleNamespace(version=SimpleNamespace(cuda="12.8", hip=None))
    monkeypatch.setitem(sys.modules, "torch", fake)
    stack = probe.current_stack("measured", target("h200"))
    assert (stack.driver, stack.runtime) == ("580.1", "12.8")


def test_the_compiler_for_amd_is_part_of_triton():
    assert probe.current_stack("estimated", target("mi300x")).compiler == "triton-llvm"


def test_only_settings_that_change_the_machine_code_are_kept():
    environment = {
        "TRITON_DEFAULT_FP_FUSION": "0",
        "DISABLE_PTXAS_OPT": "1",
        "TRITON_HIP_USE_BLOCK_PINGPONG": "1",
        "TRITON_CACHE_DIR": "/tmp/c",
        "AMDGCN_ENABLE_DUMP": "1",
        "TRITON_PTXAS_PATH": "",
        "HOME": "/root",
    }
    assert probe.codegen_settings(environment) == (
        ("DISABLE_PTXAS_OPT", "1"),
        ("TRITON_DEFAULT_FP_FUSION", "0"),
        ("TRITON_HIP_USE_BLOCK_PINGPONG", "1"),
    )


def test_a_setting_makes_another_stack(monkeypatch):
    monkeypatch.delenv("DISABLE_PTXAS_OPT", raising=False)
    before = probe.current_stack("estimated", target("h200"))
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    assert probe.current_stack("estimated", target("h200")).key != before.key


def test_without_triton_the_error_says_how_to_get_it(monkeypatch):
    toolchain.triton_folder.cache_clear()
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    try:
        with pytest.raises(MissingError, match="Triton is not installed; install it with `pip install triton`"):
            probe.current_stack("estimated", target("h200"))
    finally:
        toolchain.triton_folder.cache_clear()


def test_a_ptxas_that_does_not_run_is_named(tmp_path):
    broken = tmp_path / "ptxas"
    broken.write_text("not a program")
    broken.chmod(0o755)
    with pytest.raises(MissingError, match=r"ptxas does not run .*reinstall triton"):
        toolchain.ptxas_version(broken)
