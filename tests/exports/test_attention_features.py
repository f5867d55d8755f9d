"""Winners of attentions with features: kept apart from those without, and left out where no call asks for them."""

from __future__ import annotations

import pytest

import tuner
from tests.exports.stored_winners import attention, store_winner
from tuner.operators import get

PLAIN = "template=pointer,BLOCK_M=64,BLOCK_N=32,num_warps=4,num_stages=2"
FEATURED = "template=pointer,BLOCK_M=128,BLOCK_N=32,num_warps=4,num_stages=2"


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("features") / "tuner.db"
    plain = attention(128)
    windowed = get("attention_fwd").problem(plain.sizes, plain.dtype, {"window_left": 31})
    store_winner(path, plain, PLAIN)
    store_winner(path, windowed, FEATURED)
    store_winner(path, get("attention_fwd").problem({**plain.sizes, "v_head_dim": 32}, plain.dtype), FEATURED)
    store_winner(path, get("attention_fwd").problem(plain.sizes, "fp8"), FEATURED)
    return str(path)


def test_the_package_has_the_plain_one_alone_and_says_so(database, tmp_path):
    done = tuner.export("python", tmp_path / "tuned_kernels", db=database)
    assert {item.why for item in done.left_out} == {
        "a call of the package has no window_left",
        "v_head_dim is not head_dim, as it is in every call of the package",
        "a call of the package has no scales, which inputs in fp8 need",
    }
    variants = list((tmp_path / "tuned_kernels" / "variants").glob("attention_fwd_pointer_*.py"))
    assert len(variants) == 1 and "window" not in variants[0].read_text().lower()


def test_a_table_for_flex_attention_has_the_plain_one_alone(database, tmp_path):
    done = tuner.export("flex", tmp_path / "flex_options.py", db=database, seed=True)
    why = "the format is for attention of one head_dim, without windows and other features"
    assert sorted(item.why for item in done.left_out) == ["the format is for 16-bit inputs", why, why]


def test_a_lookup_tells_them_apart(database):
    table = tuner.lookup("attention_fwd", db=database)
    assert table.option_names == ("causal", "allow_tf32", "scale")
    plain, windowed = (
        table.best("fp16", (1, 2, 2, 128, 128, 64), options)
        for options in (None, (False, False, None, ("window_left", 31)))
    )
    assert plain.config.values["BLOCK_M"] == 64 and windowed.config.values["BLOCK_M"] == 128
    assert table.best("fp16", (1, 2, 2, 128, 128, 64), (False, False, None, ("window_left", 32))) is None
    own = table.best("fp16", (1, 2, 2, 128, 128, 64, ("v_head_dim", 32)))
    assert own.config.values["BLOCK_M"] == 128
