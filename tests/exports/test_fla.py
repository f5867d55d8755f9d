"""The fla-core format: by fla-core's own loader where it is there, and by its rules written down."""

from __future__ import annotations

import hashlib
import json
import runpy
from pathlib import Path

import pytest

import tuner
from tests.exports.consumers import consumers
from tests.exports.stored_winners import ESTIMATED, H100, softmax, store_winner
from tests.programs import environment, run
from tuner.errors import UsageError
from tuner.exports.fla import FlaCache
from tuner.operators import get
from tuner.targets import target

KERNEL = "softmax_whole_row_kernel"


@pytest.fixture(scope="module")
def table(winners: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fla") / "configs"
    tuner.export("fla", path, db=str(winners), operator="softmax")
    return path


def read(table: Path) -> dict[str, object]:
    return dict(json.loads((table / "NVIDIA_H200" / f"{KERNEL}.json").read_text()))


def test_a_file_has_what_the_loader_reads(table):
    data = read(table)
    assert data["kernel_name"] == KERNEL and data["triton_version"] == "3.9.0"
    key = [512, "torch.float16", "torch.float16"]
    # The loader's name of a key: MD5 of its compact, key-sorted JSON.
    name = hashlib.md5(b'[512,"torch.float16","torch.float16"]').hexdigest()
    assert data["autotune_entries"][name] == {
        "autotune_key": key,
        "best_timing": pytest.approx(64 * 512 / 1e7),
        "config": {
            "kwargs": {"RECOMPUTE_EXP": False, "USE_EXP2": True},
            "num_warps": 1,
            "num_stages": 3,
            "num_ctas": 1,
            "maxnreg": None,
        },
    }


def test_what_follows_from_the_shape_is_left_to_the_caller(table):
    assert all("BLOCK_COLS" not in e["config"]["kwargs"] for e in read(table)["autotune_entries"].values())


def test_the_first_entry_is_the_one_that_loses_least_elsewhere(table):
    # With these times 2 or 4 warps lose 10, 10 and 20 % at the other widths; 1 or 8 lose 10, 20 and 30 %.
    data = read(table)
    first = next(iter(data["autotune_entries"].values()))
    assert first["autotune_key"][0] == 1024
    assert data["default_config"] == first["config"]


def test_the_loss_of_fuzzy_mode_is_printed(winners, tmp_path):
    result = tuner.export("fla", tmp_path / "fla", db=str(winners))
    assert [loss.text for loss in result.losses] == [
        "fla in fuzzy mode: expected loss 15.0% (median 15.0%, worst 20.0%), 4 of 4 shapes left out in turn"
    ]


def test_kernels_that_no_autotuner_can_launch_are_left_out_with_the_reason(winners, tmp_path):
    result = tuner.export("fla", tmp_path / "fla", db=str(winners))
    assert {item.why for item in result.left_out} == {
        "template pointer: launch() computes the argument tiles_m from BLOCK_M, which an autotuner chooses after it"
    }
    with pytest.raises(UsageError, match=r"no winner fits a kernel under an autotuner: attention_fwd .* tiles_m"):
        tuner.export("fla", tmp_path / "none", db=str(winners), operator="attention_fwd")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("template=online,BLOCK_COLS=1024", "the kernel does not take PROGRAMS_PER_SM, which launch() uses outside it"),
        ("template=split_row,BLOCK_COLS=1024", "its launch() calls 2 kernels, and an autotuner chooses for one"),
    ],
)
def test_other_kernels_that_do_not_fit(tmp_path, config, why):
    store_winner(tmp_path / "tuner.db", softmax(64, 16384), config)
    with pytest.raises(UsageError, match=why.replace("(", r"\(").replace(")", r"\)")):
        tuner.export("fla", tmp_path / "fla", db=str(tmp_path / "tuner.db"))


@pytest.mark.parametrize("format", ["fla", "triton"])
def test_an_option_that_is_left_out_is_the_number_in_the_key_that_its_launch_is_given(tmp_path, format):
    database = tmp_path / "tuner.db"
    for given in ({}, {"label_smoothing": 0.125}, {"z_loss": 0.5}):
        problem = get("cross_entropy").problem({"rows": 8, "cols": 512}, "bf16", given)
        store_winner(database, problem, "template=whole_row,num_warps=2")
    store_winner(database, softmax(8, 512), "template=whole_row,num_warps=2")
    result = tuner.export(format, tmp_path / f"table{'.py' * (format == 'triton')}", db=str(database))
    assert result.left_out == () and result.entries == 4
    if format == "fla":
        text = (tmp_path / "table" / "NVIDIA_H200" / "cross_entropy_whole_row_kernel.json").read_text()
        keys = [entry["autotune_key"] for entry in json.loads(text)["autotune_entries"].values()]
    else:
        keys = list(
            runpy.run_path(str(tmp_path / "table.py"))["TABLES"]["NVIDIA H200"]["cross_entropy_whole_row_kernel"]
        )
    # row_stride, cols, label_smoothing, z_loss
    assert sorted(tuple(key[:4]) for key in keys) == [
        (512, 512, 0.0, 0.0),
        (512, 512, 0.0, 0.5),
        (512, 512, 0.125, 0.0),
    ]


def test_of_two_problems_with_one_key_the_config_that_loses_less_is_taken(tmp_path):
    database = tmp_path / "tuner.db"
    configs = {f"template=whole_row,USE_EXP2=true,RECOMPUTE_EXP=false,num_warps={w}": w for w in (1, 2)}
    one, two = configs
    store_winner(database, softmax(8, 512), *configs, us={one: 10.0, two: 10.1})
    store_winner(database, softmax(4096, 512), *configs, us={one: 200.0, two: 100.0})
    result = tuner.export("fla", tmp_path / "fla", db=str(database))
    (entry,) = read(tmp_path / "fla")["autotune_entries"].values()
    assert entry["config"]["num_warps"] == 2
    assert [item.why for item in result.left_out] == [
        "has the key of softmax rows=4096 cols=512 row_stride=512 fp16 (cols), whose config is used"
    ]


def test_a_measured_winner_goes_before_an_estimate_for_the_same_model(tmp_path):
    database = tmp_path / "tuner.db"
    store_winner(database, softmax(8, 512), "template=whole_row,num_warps=2", device=H100)
    bare = target("sm_90")  # (as NVIDIA H100 80GB HBM3)
    store_winner(database, softmax(8, 512), "template=whole_row,num_warps=1", device=bare, stack=ESTIMATED)
    for name, path in (("fla", "fla"), ("triton", "configs.py")):
        result = tuner.export(name, tmp_path / path, db=str(database), estimated=True)
        assert (result.entries, result.estimated) == (1, 0)
        assert [item.what for item in result.left_out] == [f"{softmax(8, 512).label} on {bare.name}"]


def test_the_key_can_be_named(winners, tmp_path):
    settings = {"key": "cols+x_row_stride:row_stride"}
    tuner.export("fla", tmp_path / "fla", db=str(winners), operator="softmax", settings=settings)
    keys = [e["autotune_key"][:2] for e in read(tmp_path / "fla")["autotune_entries"].values()]
    assert sorted(keys) == [[512, 512], [1024, 1024], [2048, 2048], [4096, 4096]]
    with pytest.raises(UsageError, match="--set key: 'n:columns' names nothing of the problem; it has rows, cols"):
        tuner.export("fla", tmp_path / "fla", db=str(winners), operator="softmax", settings={"key": "n:columns"})
    with pytest.raises(UsageError, match=r"--set: fla has no setting 'keys' \(did you mean `key`\?\)"):
        tuner.export("fla", tmp_path / "fla", db=str(winners), settings={"keys": "cols"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["default_config"].pop("num_ctas"), "default_config.num_ctas: Field required"),
        (lambda d: d.update(kernel_name="other"), "kernel_name: is 'other'"),
        (lambda d: d["default_config"].update(num_warps=3), "default_config.num_warps"),
        (lambda d: d.update(autotune_entries={}), "autotune_entries"),
    ],
)
def test_a_file_that_the_consumer_would_not_load_as_meant_is_found(table, change, said):
    data = read(table)
    change(data)
    with pytest.raises(UsageError, match=said):
        FlaCache().validate({f"{KERNEL}.json": json.dumps(data)})


def test_doctor_says_what_stands_in_the_way(table, monkeypatch):
    monkeypatch.delenv("FLA_CACHE_MODE", raising=False)
    monkeypatch.delenv("FLA_CONFIG_DIR", raising=False)
    rows = {check.name: check for check in FlaCache().examine()}
    assert rows["FLA_CACHE_MODE"].status == "warning" and "tables are ignored" in rows["FLA_CACHE_MODE"].remedy
    assert rows["FLA_CONFIG_DIR"].status == "warning"
    monkeypatch.setenv("FLA_CACHE_MODE", "strict")
    monkeypatch.setenv("FLA_CONFIG_DIR", str(table / "NVIDIA_H200"))
    rows = {check.name: check for check in FlaCache().examine()}
    assert rows["FLA_CACHE_MODE"].status == "ok"
    assert rows[f"{KERNEL}.json"].value.startswith("4 entries")
    monkeypatch.setenv("FLA_CONFIG_DIR", str(table))  # the folder above
    assert {c.name: c for c in FlaCache().examine()}["FLA_CONFIG_DIR"].status == "missing"


PROGRAM = """
import importlib.util, json, pathlib, sys, torch, triton, triton.language as tl
try:
    import fla.ops.utils.cache as cache
except ValueError:  # 0.5.2 as a whole does not import on Triton 3.9, which refuses the keys of some of its kernels
    spec = importlib.util.spec_from_file_location("cache", pathlib.Path(sys.argv[1]) / "fla/ops/utils/cache.py")
    cache = importlib.util.module_from_spec(spec)
    sys.modules["cache"] = cache
    spec.loader.exec_module(cache)
AutotuneKey, fla_cache_autotune, load_cached_config = (
    cache.AutotuneKey, cache.fla_cache_autotune, cache.load_cached_config)

def config(*key):
    found = load_cached_config("softmax_whole_row_kernel", AutotuneKey(key))
    return None if found is None else found["num_warps"]

@fla_cache_autotune(configs=[triton.Config({"USE_EXP2": False, "RECOMPUTE_EXP": False}, num_warps=w) for w in (16, 32)],
                    key=["cols"])
@triton.jit
def softmax_whole_row_kernel(x_ptr, out_ptr, x_row_stride, out_row_stride, cols, BLOCK_COLS: tl.constexpr,
                             USE_EXP2: tl.constexpr, RECOMPUTE_EXP: tl.constexpr):
    pass

launched = []
class Recorder:
    arg_names = softmax_whole_row_kernel.arg_names
    def run(self, *args, **kwargs):
        launched.append({k: v for k, v in kwargs.items() if isinstance(v, (bool, int))})
softmax_whole_row_kernel.fn = Recorder()
x = torch.empty(8, 2048, dtype=torch.float16)
softmax_whole_row_kernel[(8,)](x, x, 2048, 2048, 2048, BLOCK_COLS=2048)
f16, bf16 = "torch.float16", "torch.bfloat16"
print(json.dumps({"exact": config(4096, f16, f16), "near": config(4095, f16, f16), "dtype": config(4096, bf16, bf16),
                  "launched": launched}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["strict", "fuzzy", "full"])
@pytest.mark.parametrize("package", consumers("fla-core"))
def test_the_consumers_own_loader_takes_it(table, tmp_path, package, mode):
    (tmp_path / "program.py").write_text(PROGRAM)
    settings = {"FLA_CONFIG_DIR": str(table / "NVIDIA_H200"), "FLA_GPU_NAME": "NVIDIA H200", "FLA_CACHE_MODE": mode}
    done = run(tmp_path / "program.py", package, env=environment(package, **settings), cwd=tmp_path, limit_s=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    near, other = {"strict": (None, None), "fuzzy": (2, None), "full": (2, 2)}[mode]
    assert (found["exact"], found["near"], found["dtype"]) == (8, near, other)
    (launch,) = found["launched"]  # one launch, and no benchmark: without a GPU it would have failed
    assert {n: launch[n] for n in ("USE_EXP2", "RECOMPUTE_EXP", "BLOCK_COLS", "num_warps")} == {
        "USE_EXP2": True, "RECOMPUTE_EXP": False, "BLOCK_COLS": 2048, "num_warps": 4,
    }  # fmt: skip
