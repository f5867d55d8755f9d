"""Named targets: spelling, limits, names as drivers print them."""

import pytest

from tuner.errors import TargetError
from tuner.targets import ARCH_LIMITS, model, names, target


@pytest.mark.parametrize("spelling", ["h200", "H200", "NVIDIA H200", "nvidia-h200", " h200 ", "H200-SXM"])
def test_spelling_of_a_model_is_forgiving(spelling):
    assert target(spelling).name == "NVIDIA H200"


@pytest.mark.parametrize("spelling", ["sm_90", "sm90", "SM90", "sm_90a", "90", "9.0", "compute_90"])
def test_spelling_of_an_architecture_is_forgiving(spelling):
    device = target(spelling)
    assert device.arch == 90
    assert device.name == "sm_90 (as NVIDIA H100 80GB HBM3)"


def test_two_digit_majors_are_read_as_such():
    assert target("sm_100").arch == 100
    assert target("12.0").arch == 120


def test_the_name_of_every_target_names_it_again():
    for name in names():
        assert target(target(name).name) == target(name)


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("a100", "NVIDIA A100-SXM4-80GB"),
        ("a100-40", "NVIDIA A100-SXM4-40GB"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("RTX 5090", "NVIDIA GeForce RTX 5090"),
        ("h100-pcie", "NVIDIA H100 PCIe"),
        ("mi300x", "AMD Instinct MI300X"),
    ],
)
def test_names_are_what_the_driver_prints(name, printed):
    assert target(name).name == printed


@pytest.mark.parametrize(
    ("name", "shared", "threads_per_sm"),
    [  # CUDA C++ Programming Guide, technical specifications per compute capability
        ("t4", 65536, 1024),
        ("a100", 166912, 2048),
        ("rtx3090", 101376, 1536),
        ("l4", 101376, 1536),
        ("h200", 232448, 2048),
        ("b200", 232448, 2048),
        ("rtx5090", 101376, 1536),
        ("mi300x", 65536, 2048),
    ],
)
def test_limits_are_those_of_the_architecture(name, shared, threads_per_sm):
    device = target(name)
    assert device.shared_bytes_per_block == shared
    assert device.threads_per_sm == threads_per_sm
    assert device.threads_per_block == 1024


def test_exp2_rate_is_16_a_clock_and_sm():
    assert target("h200").exp2_rate == 16 * 132 * 1.98e9


def test_an_unknown_target_names_the_close_ones():
    with pytest.raises(TargetError, match=r"unknown target 'h2000'; did you mean .*h200"):
        target("h2000")


def test_a_target_like_nothing_lists_all():
    with pytest.raises(TargetError, match=r"unknown target 'voodoo'; known: .*a100.*gfx942"):
        target("voodoo")


def test_an_architecture_without_a_representative_is_unknown():
    with pytest.raises(TargetError, match="sm_61"):
        target("sm_61")


def test_models_of_one_architecture_are_different_devices():
    keys = {target(n).key for n in ("h100", "h100-pcie", "h200", "gh200", "sm_90")}
    assert len(keys) == 5


def test_every_target_has_its_rates_and_architecture_limits():
    for name in names():
        device = target(name)
        assert device.arch in ARCH_LIMITS
        assert min(device.memory_bandwidth, device.tensor_flops, device.fp32_flops, device.exp2_rate) > 1e11


def test_a_model_is_found_by_its_exact_driver_name_only():
    assert model("NVIDIA L4") is target("l4")
    assert model("l4") is None
