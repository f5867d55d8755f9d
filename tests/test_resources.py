"""Resources and instruction counts of kernels that are really compiled, without a GPU."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="compiles with Triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from tuner import resources, toolchain  # noqa: E402
from tuner.errors import MissingError  # noqa: E402
from tuner.instructions import instruction_counts  # noqa: E402
from tuner.occupancy import blocks_per_sm  # noqa: E402
from tuner.resources import block_registers, fits, read_resources  # noqa: E402
from tuner.targets import target  # noqa: E402
from tuner.trial import KernelResources  # noqa: E402

KERNELS_FILE = Path(__file__).parent / "kernels" / "resource_kernels.py"
SPEC = importlib.util.spec_from_file_location("resource_kernels", KERNELS_FILE)
assert SPEC is not None and SPEC.loader is not None
kernels = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(kernels)

SM90, SM80, GFX942 = GPUTarget("cuda", 90, 32), GPUTarget("cuda", 80, 32), GPUTarget("hip", "gfx942", 64)
DIVISIBLE = [["tt.divisibility", 16]]


def compile_kernel(kernel, signature, constants, gpu, aligned, **options):
    full = {**signature, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(kernel, full, constexprs=constants, attrs={(i,): DIVISIBLE for i in aligned})
    return triton.compile(source, target=gpu, options=options)


def compile_copy(gpu, block=1024, **options):
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "size": "i32"}
    return compile_kernel(kernels.copy_exp2, signature, {"BLOCK": block}, gpu, (0, 1, 2), **options)


def compile_matmul(gpu, tile, **options):
    signature = {"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*fp32", "depth": "i32", "stride": "i32"}
    constants = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True))
    return compile_kernel(kernels.matmul, signature, constants, gpu, range(5), **options)


@pytest.fixture(scope="module", autouse=True)
def private_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        yield


@pytest.fixture(scope="module")
def copy_sm90(private_cache):
    return compile_copy(SM90, num_warps=4)


@pytest.fixture(scope="module")
def matmul_sm90(private_cache):
    return compile_matmul(SM90, (128, 128, 64), num_warps=8, num_stages=3)


@pytest.fixture(scope="module")
def spilling_sm90(private_cache):
    return compile_matmul(SM90, (128, 256, 32), num_warps=4, num_stages=2)


@pytest.fixture(scope="module")
def copy_gfx942(private_cache):
    return compile_copy(GFX942, num_warps=4)


def test_a_plain_kernel_takes_threads_and_registers_and_no_shared_memory(copy_sm90):
    found = read_resources(copy_sm90.asm, copy_sm90.metadata)
    assert found.name == "copy_exp2"
    assert (found.threads, found.shared_bytes, found.spill_bytes) == (128, 0, 0)
    assert 8 <= found.registers <= 64


def test_a_pipelined_matmul_takes_the_shared_memory_of_its_stages(matmul_sm90):
    found = read_resources(matmul_sm90.asm, matmul_sm90.metadata)
    # 3 stages x (128 x 64 + 64 x 128) x 2 bytes; what CUDA reserves for itself is not counted
    assert found.shared_bytes == 3 * (128 * 64 + 64 * 128) * 2
    assert found.threads == 256


def test_an_accumulator_larger_than_the_registers_spills(spilling_sm90):
    found = read_resources(spilling_sm90.asm, spilling_sm90.metadata)
    assert found.registers == 255
    assert found.spill_bytes > 0


@pytest.mark.parametrize("which", ["copy_sm90", "matmul_sm90", "spilling_sm90"])
def test_the_elf_file_says_what_cuobjdump_says(which, request):
    cubin = request.getfixturevalue(which).asm["cubin"]
    assert resources.read_cubin_sections(cubin) == resources.read_cubin(cubin)


def test_without_cuobjdump_the_elf_file_is_read(copy_sm90, monkeypatch):
    with_tool = read_resources(copy_sm90.asm, copy_sm90.metadata)
    monkeypatch.setattr(toolchain, "nvidia_tool", lambda name: None)
    assert read_resources(copy_sm90.asm, copy_sm90.metadata) == with_tool


def test_something_that_is_no_cubin_is_an_error(monkeypatch):
    with pytest.raises(MissingError, match="states no register count"):
        resources.read_cubin(b"nothing")


def test_amd_figures_come_from_the_assembly(copy_gfx942):
    found = read_resources(copy_gfx942.asm, copy_gfx942.metadata)
    assert (found.threads, found.spill_bytes, found.shared_bytes) == (256, 0, 0)
    assert found.registers >= 4


def test_amd_spills_are_counted_in_bytes():
    text = (
        "    .vgpr_count:     256\n    .vgpr_spill_count: 12\n    .private_segment_fixed_size: 52\n  - .agpr_count: 0\n"
    )
    assert resources.read_amdgcn(text) == {
        "vgpr_count": 256,
        "agpr_count": 0,
        "vgpr_spill_count": 12,
        "group_segment_fixed_size": 0,
        "private_segment_fixed_size": 52,
    }


def test_an_artefact_of_another_kind_is_an_error(copy_sm90):
    with pytest.raises(MissingError, match="neither a cubin nor amdgcn"):
        read_resources({"spv": b""}, copy_sm90.metadata)


def test_each_exponential_and_access_is_counted(copy_sm90):
    counts = instruction_counts(copy_sm90.asm)
    # 1024 numbers over 128 threads: 8 exponentials a thread, in two 16-byte accesses each way
    assert (counts["ex2"], counts["ld_global_128"], counts["st_global_128"]) == (8, 2, 2)
    assert "mma" not in counts
    assert not any(kind.startswith("loop.") for kind in counts)


def test_matrix_instructions_inside_the_loop_are_counted_with_their_operations(matmul_sm90):
    counts = instruction_counts(matmul_sm90.asm)
    # each of the two warpgroups multiplies 64 x 64 by 64 x 128, 16 deep an instruction
    assert counts["wgmma"] == counts["mma"] == counts["loop.mma"] == 4
    assert counts["loop.mma_flops"] == 2 * 128 * 128 * 64 // 8
    assert counts["loop.cp_async_128"] == (128 * 64 + 64 * 128) * 2 // 16 // 256


def test_before_hopper_products_are_mma_sync(private_cache):
    counts = instruction_counts(compile_matmul(SM80, (64, 64, 32), num_warps=4, num_stages=2).asm)
    # m16n8k16 a warp: 64 * 64 * 32 / (16 * 8 * 16) / 4 warps
    assert counts["loop.mma"] == 16
    assert counts["loop.mma_flops"] == 2 * 64 * 64 * 32 // 4
    assert "wgmma" not in counts


def test_amd_instructions_are_counted(copy_gfx942):
    counts = instruction_counts(copy_gfx942.asm)
    assert counts["ex2"] == 4
    assert counts["ld_global_128"] == 1
    assert counts["st_global_128"] == 1


def test_only_innermost_loops_are_marked():
    ptx = """
    $outer:
        ld.global.b32 %r1, [%rd1];
    $inner:
        @%p1 ld.global.L1::evict_last.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
        @%p2 bra $inner;
        st.global.v2.b32 [%rd2], {%r1, %r2};
        bra.uni $outer;
    """
    counts = instruction_counts({"ptx": ptx})
    assert counts == {
        "ld_global_32": 1, "ld_global_128": 1, "loop.ld_global_128": 1, "loop.total": 2, "st_global_64": 1, "total": 5,
    }  # fmt: skip


def test_tma_copies_are_told_apart_by_direction():
    ptx = """
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];
        cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r2, %r3}], [%r1];
    """
    counts = instruction_counts({"ptx": ptx})
    assert (counts["tma_load"], counts["tma_store"]) == (1, 1)


def test_without_assembly_text_there_are_no_counts():
    assert instruction_counts({"cubin": b""}) == {}


PLAIN = KernelResources("k", registers=64, spill_bytes=0, shared_bytes=100_000, threads=256)


def test_a_kernel_within_the_limits_fits():
    assert fits(PLAIN, target("rtx4090")) is None


def test_too_much_shared_memory_is_named_with_the_limit():
    big = replace(PLAIN, shared_bytes=160_000)
    assert fits(big, target("a100")) is None
    assert fits(big, target("rtx4090")) == (
        "k: shared memory: needs 160000 bytes a block, but NVIDIA GeForce RTX 4090 has 101376"
    )


def test_exactly_the_limit_of_shared_memory_fits():
    assert fits(replace(PLAIN, shared_bytes=232448), target("h200")) is None
    assert fits(replace(PLAIN, shared_bytes=232449), target("h200")) is not None


def test_too_many_registers_a_block_are_named_as_they_are_allocated():
    # 65 registers x 32 lanes = 2080, rounded up to 2304 a warp; x 32 warps
    assert fits(replace(PLAIN, registers=65, threads=1024), target("h200")) == (
        "k: registers: needs 73728 a block, but NVIDIA H200 has 65536"
    )


def test_registers_are_allocated_in_units_of_256_and_four_warps():
    assert block_registers(replace(PLAIN, registers=33, threads=32), target("h200")) == 4 * 1280


def test_too_many_threads_are_named():
    assert "threads: needs 2048 a block" in str(fits(replace(PLAIN, threads=2048, registers=16), target("h200")))


@pytest.mark.parametrize(
    ("kernel", "device", "blocks"),
    [  # as NVIDIA's occupancy calculator gives them
        (KernelResources("k", 32, 0, 0, 256), "h200", 8),
        (KernelResources("k", 128, 0, 0, 256), "h200", 2),
        (KernelResources("k", 32, 0, 100_000, 256), "h200", 2),
        (KernelResources("k", 32, 0, 232_448, 256), "h200", 1),
        (KernelResources("k", 32, 0, 115_712, 256), "h200", 2),  # 2 x (113 KiB + 1 KiB that CUDA keeps) = 228 KiB
        (KernelResources("k", 32, 0, 115_713, 256), "h200", 1),
        (KernelResources("k", 32, 0, 0, 32), "rtx3090", 16),
        (KernelResources("k", 255, 0, 0, 1024), "h200", 0),
    ],
)
def test_resident_blocks_follow_the_scarcest_resource(kernel, device, blocks):
    assert blocks_per_sm(kernel, target(device)) == blocks
