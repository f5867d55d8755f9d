"""Where a search begins: winners of similar problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stored_history import GUESSED, OLD, Recorder, simulated
from tuner.config import Config
from tuner.device import Stack
from tuner.operators import get
from tuner.search import make_proposer
from tuner.similar import MOST, similar_winners
from tuner.space import BoundSpace, load_space
from tuner.store.store import Store
from tuner.targets import target


def bound(rows: int = 4096, cols: int = 4096, dtype: str = "bf16") -> BoundSpace:
    return load_space("softmax").bind(get("softmax").problem({"rows": rows, "cols": cols}, dtype), target("h200"))


def crown(store: Store, space: BoundSpace, config: Config, stack: Stack = OLD) -> None:
    Recorder(store).crowned(space.problem, stack, config, simulated(10.0, config.key))


@pytest.fixture
def store(tmp_path: Path):
    with Store.open(f"sqlite:///{tmp_path / 'tuner.db'}") as opened:
        yield opened


def online(space: BoundSpace, block: int, num_warps: int = 8) -> Config:
    return space.parse(f"template=online,BLOCK_COLS={block},num_warps={num_warps}")


def test_the_most_similar_problem_comes_first_and_measured_before_estimated(store):
    near, far, other_dtype = bound(4096, 8192), bound(8192, 8192), bound(4096, 4096, "fp16")
    crown(store, far, online(far, 2048))
    crown(store, other_dtype, online(other_dtype, 4096))
    crown(store, near, online(near, 1024, 4), GUESSED)
    crown(store, near, online(near, 1024))
    wanted = bound()
    assert similar_winners(store, wanted) == [online(wanted, 1024), online(wanted, 1024, 4), online(wanted, 2048)]


def test_nothing_comes_of_other_operators_of_plain_configs_and_of_an_empty_database(store):
    wanted = bound()
    assert similar_winners(store, wanted) == []
    crown(store, bound(4096, 8192), bound(4096, 8192).plain()[0])
    attention = load_space("attention_fwd").bind(
        get("attention_fwd").problem({"batch": 1, "heads": 2, "q_len": 512, "kv_len": 512, "head_dim": 64}, "bf16"),
        target("h200"),
    )
    crown(store, attention, attention.plain()[0])
    assert {c.template for c in similar_winners(store, wanted)} <= {"whole_row", "several_rows", "online", "persistent"}
    assert not {c.key for c in similar_winners(store, wanted)} & {c.key for c in wanted.plain()}


def test_a_value_that_is_not_allowed_here_gives_way_to_the_nearest_valid_config(store):
    wide, narrow = bound(64, 7000), bound(64, 2000)
    crown(store, wide, online(wide, 4096, 16))
    (found,) = similar_winners(store, narrow)
    assert found.template == "online"
    assert found.values["num_warps"] == 16
    assert found.values["BLOCK_COLS"] <= 2048
    assert narrow.is_valid("online", {name: found.values[name] for name in found.chosen})


def test_there_are_at_most_three(store):
    for cols, (block, warps) in {8192: (1024, 4), 12000: (1024, 8), 14000: (1024, 16), 16384: (2048, 4)}.items():
        crown(store, bound(4096, cols), online(bound(4096, cols), block, warps))
    assert len(similar_winners(store, bound())) == MOST == 3


@pytest.mark.parametrize(
    "rows, cols, near",
    [(4096, 16384, True), (16384, 8192, True), (1024, 2048, True), (4096, 32768, False), (8192, 16384, False)],
)
def test_a_problem_of_far_other_sizes_says_nothing(store, rows, cols, near):
    other = bound(rows, cols)
    crown(store, other, online(other, 2048, 4))
    assert bool(similar_winners(store, bound())) is near


def test_the_search_tries_them_after_the_plain_configs(store):
    wanted = bound()
    similar = [online(wanted, 1024), online(wanted, 2048)]
    proposer = make_proposer(wanted, similar=similar)
    proposals = [proposer.ask() for _ in range(len(wanted.plain()) + 3)]
    assert [p.config for p in proposals if p and p.source == "similar"] == similar
    assert [p.source for p in proposals if p][-4:] == ["plain", "similar", "similar", "sampler"]


def test_what_is_not_in_the_space_is_left_out():
    wanted = bound()
    foreign = Config("online", (), (("BLOCK_COLS", 3),), ("BLOCK_COLS",))
    proposer = make_proposer(wanted, similar=[foreign])
    assert "similar" not in {p.source for _ in range(8) if (p := proposer.ask())}


def decode(kv_len: int, page_size: int) -> BoundSpace:
    shape = {"batch": 1, "heads": 32, "kv_heads": 8, "kv_len": kv_len, "head_dim": 128, "page_size": page_size}
    return load_space("attention_decode").bind(get("attention_decode").problem(shape, "bf16"), target("h200"))


def test_a_size_of_0_is_unlike_every_other_and_like_itself(store):
    paged, whole, wanted = decode(32768, 16), decode(8192, 0), decode(32768, 0)
    theirs = [config for config in paged.configs() if config not in paged.plain()]
    ours = [config for config in whole.configs() if config not in whole.plain()]
    crown(store, paged, theirs[0])
    crown(store, whole, ours[-1])
    assert similar_winners(store, wanted)[0] == wanted.nearest(ours[-1])
