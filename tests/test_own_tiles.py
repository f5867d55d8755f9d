"""Which tiles a kernel file has, as far as its text says."""

from __future__ import annotations

import ast

import pytest

from tuner.own_tiles import FoundTile, block_sizes, tile_of

AUTOTUNED = """
@triton.autotune([triton.Config({"BLOCK_M": m, "BLOCK_N": 32}), triton.Config({"BLOCK_M": 128, "BLOCK_N": 64})], key=[])
@triton.jit
def kernel(x, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    tiles_n = tl.cdiv(n, BLOCK_N)
    tile_n = tl.program_id(1) % 4096
"""


@pytest.mark.parametrize(
    ("text", "arguments", "sizes"),
    [
        ("kernel[grid](x, BLOCK=128)", {}, {"BLOCK": {128}}),
        ("BLOCK_N = 2 * 64", {}, {"BLOCK_N": {128}}),
        ("BLOCK_N = 1 << 7\nTILE_M: tl.constexpr = tl.constexpr(16)", {}, {"BLOCK_N": {128}, "TILE_M": {16}}),
        ("size = 256\ndef launch(x):\n    kernel[grid](x, BLOCK_N=size)", {}, {"BLOCK_N": {256}}),
        ("def launch(x, *, size):\n    kernel[grid](x, BLOCK_N=size)", {"size": 32}, {"BLOCK_N": {32}}),
        ("def launch(x, *, BLOCK_N=128): kernel[g](x, BLOCK_N=BLOCK_N)", {}, {"BLOCK_N": {128}}),
        ("def launch(x, *, BLOCK_N=128): kernel[g](x, BLOCK_N=BLOCK_N)", {"BLOCK_N": 64}, {"BLOCK_N": {64}}),
        ("block_size = min(triton.next_power_of_2(n), 4096)", {}, {"block_size": {4096}}),
        ("BLOCK = 64 if n < 100 else 512", {}, {"BLOCK": {64, 512}}),
        ("BLOCK = triton.next_power_of_2(cols)", {}, {}),
        (AUTOTUNED, {}, {"BLOCK_M": {128}, "BLOCK_N": {32, 64}}),
        ("TILE_ORDER = 'ascending'\nNUM_TILES = 9\nblock = tl.load(p + 64)", {}, {}),
    ],
)
def test_every_size_that_a_block_parameter_may_have_is_found(text, arguments, sizes):
    assert block_sizes(ast.parse(text), arguments) == sizes


@pytest.mark.parametrize(
    ("axis", "sizes", "reduced", "found"),
    [
        ("kv_len", {"BLOCK_M": {128}, "BLOCK_N": {32, 64}}, True, FoundTile(64, 32, ("BLOCK_N",))),
        ("q_len", {"BLOCK_M": {128}, "BLOCK_N": {32, 64}}, False, FoundTile(128, 128, ("BLOCK_M",))),
        ("kv_len", {"KEYS_BLOCK_N": {64}, "QUERIES_BLOCK_N": {16}}, True,
         FoundTile(64, 16, ("KEYS_BLOCK_N", "QUERIES_BLOCK_N"))),
        ("cols", {"BLOCK_SIZE": {256}}, True, FoundTile(256, 256, ("BLOCK_SIZE",))),
        ("cols", {"BLOCK_SIZE": {256}, "BLOCK_ROWS": {4}}, True, FoundTile(256, 256, ("BLOCK_SIZE",))),
        ("rows", {"BLOCK_SIZE": {256}, "BLOCK_ROWS": {4}}, False, FoundTile(4, 4, ("BLOCK_ROWS",))),
        ("kv_len", {"BLOCK_D": {128}, "BLOCK_M": {64}}, True, FoundTile(256, 16)),
        ("q_len", {"BLOCK_N": {64}}, False, None),
        ("cols", {}, True, FoundTile(1024, 16)),
    ],
)  # fmt: skip
def test_each_axis_takes_what_the_names_say_is_its_own(axis, sizes, reduced, found):
    assert tile_of(axis, 5000, sizes, reduced=reduced) == found


def test_a_guess_is_no_longer_than_the_axis_needs():
    assert tile_of("cols", 100, {}, reduced=True) == FoundTile(128, 16)
    assert tile_of("kv_len", 1, {}, reduced=True) == FoundTile(1, 1)
