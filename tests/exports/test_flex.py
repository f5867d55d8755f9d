"""The picker of FlexAttention's options, with torch's own types and, on the CPU, its eager ``flex_attention``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.attention.flex_attention import FlexKernelOptions, create_block_mask, flex_attention

import tuner
from tests.exports.stored_winners import attention, store_winner
from tests.exports.test_triton_module import load
from tuner.errors import UsageError
from tuner.exports import reading, selecting
from tuner.exports.flex import FlexOptions


@pytest.fixture(scope="module")
def path(winners: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flex") / "flex_options.py"
    tuner.export("flex", path, db=str(winners), seed=True)
    return path


def pick(path: Path, *, dtype: torch.dtype = torch.float16, q_len: int = 256, causal: bool = True, **more: object):
    return load(path).pick("NVIDIA H200", dtype, 64, q_len, q_len, causal, **more)


def test_a_tuned_shape_gets_its_tiles_and_another_the_nearest(path):
    assert pick(path) == {"fwd_BLOCK_M": 128, "fwd_BLOCK_N": 32, "fwd_num_warps": 4, "fwd_num_stages": 2}
    assert pick(path, q_len=70)["fwd_BLOCK_M"] == 64
    assert pick(path, q_len=8192)["fwd_BLOCK_M"] == 128


def test_what_was_not_tuned_gets_none(path):
    assert pick(path, dtype=torch.bfloat16) == {}
    assert load(path).pick("NVIDIA A100-SXM4-80GB", torch.float16, 64, 256, 256, True) == {}


def test_tiles_divide_the_blocks_of_the_mask(path):
    assert pick(path, block_size=64)["fwd_BLOCK_M"] == 64
    assert pick(path, block_size=(64, 16))["fwd_BLOCK_N"] == 16


def test_every_option_is_one_that_torch_knows_and_is_for_the_forward_pass_only(path):
    for name in pick(path):
        assert name.startswith("fwd_")
        assert name.removeprefix("fwd_") in FlexKernelOptions.__annotations__


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_takes_them(path):
    q = torch.randn(1, 2, 256, 64, dtype=torch.float32)
    mask = create_block_mask(lambda b, h, m, n: m >= n, None, None, 256, 256, device="cpu")
    out = flex_attention(q, q, q, block_mask=mask, kernel_options=pick(path))
    right = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert (out - right).abs().max() < 1e-4


def test_of_problems_of_one_length_the_larger_is_taken(tmp_path):
    database = tmp_path / "tuner.db"
    store_winner(database, attention(256, heads=2), "template=pointer,BLOCK_M=64,BLOCK_N=32,num_warps=4")
    store_winner(database, attention(256, heads=32), "template=pointer,BLOCK_M=128,BLOCK_N=32,num_warps=4")
    result = tuner.export("flex", tmp_path / "options.py", db=str(database), seed=True)
    assert pick(tmp_path / "options.py", causal=False)["fwd_BLOCK_M"] == 128
    (left_out,) = result.left_out
    assert left_out.what.startswith("attention_fwd batch=1 heads=2 ")
    assert left_out.why == "a call's options know nothing of batch and heads; a larger one is taken"


def test_where_the_winner_has_no_tiles_the_fastest_that_has_stands_in_its_place(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(selecting, "times", lambda store, winner: read.append(winner) or reading.times(store, winner))
    database = tmp_path / "tuner.db"
    gluon = "template=gluon,CONSUMERS=2"
    slow, slower = (f"template=pointer,BLOCK_M={m},BLOCK_N=32,num_warps=4,num_stages=2" for m in (128, 64))
    store_winner(database, attention(256), slower, gluon, slow, us={slower: 15.0, gluon: 10.0, slow: 12.0})
    result = tuner.export("flex", tmp_path / "options.py", db=str(database), seed=True)
    assert pick(tmp_path / "options.py", causal=False)["fwd_BLOCK_M"] == 128
    assert len(read) == 1  # the times of the problem, of which both templates are
    (note,) = [note for note in result.notes if "gluon" in note]
    assert "the fastest that was tried of template pointer, 20% slower than template=gluon" in note
    store_winner(tmp_path / "alone.db", attention(256), gluon)
    with pytest.raises(UsageError, match="template gluon has no BLOCK_M"):
        tuner.export("flex", tmp_path / "none.py", db=str(tmp_path / "alone.db"), seed=True)


def test_tiles_that_no_kernel_takes_are_found(path):
    with pytest.raises(UsageError, match="no kernel takes these tiles"):
        FlexOptions().validate({"": path.read_text().replace("(128, 32, 4, 2)", "(96, 32, 4, 2)")})
