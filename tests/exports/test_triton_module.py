"""The generated module, with Triton's own ``Autotuner``: a tuned key launches, and benchmarks nothing."""

from __future__ import annotations

import importlib.util
import json
import types
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

import tuner
from tests.checkout import other_tritons
from tests.exports.stored_winners import H100, softmax, store_winner
from tests.programs import environment, run
from tuner.errors import UsageError
from tuner.exports.triton_module import TritonModule


def load(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def path(winners: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("triton") / "tuned_configs.py"
    tuner.export("triton", path, db=str(winners))
    return path


def kernel(key: list[str], candidates: int = 2, name: str = "softmax_whole_row_kernel") -> Any:
    """A kernel under Triton's autotuner whose launches are recorded in ``.launched``."""

    def softmax_whole_row_kernel(
        x_ptr,
        out_ptr,
        x_row_stride,
        out_row_stride,
        cols,
        BLOCK_COLS: tl.constexpr,
        USE_EXP2: tl.constexpr,
        RECOMPUTE_EXP: tl.constexpr,
    ):
        pass

    softmax_whole_row_kernel.__name__ = name
    configs = [triton.Config({"USE_EXP2": False, "RECOMPUTE_EXP": False}, num_warps=16 << i) for i in range(candidates)]
    tuned = triton.autotune(configs=configs, key=key)(triton.jit(softmax_whole_row_kernel))
    tuned.launched = []

    class Recorder:
        def run(self, *args: object, **kwargs: object) -> None:
            tuned.launched.append({**kwargs, "cols": args[4]})

    tuned.fn = Recorder()
    tuned._do_bench = lambda call, quantiles: pytest.fail("a benchmark")
    return tuned


class Fp16:
    dtype = "torch.float16"


def test_a_tuned_key_launches_its_config_and_benchmarks_nothing(path):
    tuned = kernel(["cols"])
    assert load(path).preload(tuned, device="NVIDIA H200") == 4
    tuned.run(Fp16(), Fp16(), 2048, 2048, 2048, BLOCK_COLS=2048)
    (launch,) = tuned.launched
    assert {n: launch[n] for n in ("cols", "BLOCK_COLS", "USE_EXP2", "RECOMPUTE_EXP", "num_warps", "num_stages")} == {
        "cols": 2048, "BLOCK_COLS": 2048, "USE_EXP2": True, "RECOMPUTE_EXP": False, "num_warps": 4, "num_stages": 3,
    }  # fmt: skip


def test_another_key_is_tuned_by_triton_as_before(path):
    tuned = kernel(["cols"])
    load(path).preload(tuned, device="NVIDIA H200")
    with pytest.raises(pytest.fail.Exception, match="a benchmark"):
        tuned.run(Fp16(), Fp16(), 2049, 2049, 2049, BLOCK_COLS=4096)


def test_nothing_is_filled_in_for_another_device(path):
    tuned = kernel(["cols"])
    assert load(path).preload(tuned, device="NVIDIA H100 80GB HBM3") == 0
    assert tuned.cache == {}


@pytest.mark.parametrize(
    ("tuned", "said"),
    [
        (kernel(["cols"], name="another"), "nothing is tuned for another; this file has softmax_whole_row_kernel"),
        (kernel(["x_row_stride"]), r"has key=\['x_row_stride'\], but was exported for \['cols'\]"),
        (kernel(["cols"], candidates=1), "has one candidate, so Triton does not read its cache"),
    ],
)
def test_a_kernel_that_is_not_the_tuned_one_is_refused(path, tuned, said):
    with pytest.raises(ValueError, match=said):
        load(path).preload(tuned, device="NVIDIA H200")


def test_the_tuned_configs_serve_as_candidates(path):
    found = load(path).configs("softmax_whole_row_kernel", device="NVIDIA H200")
    assert [config.num_warps for config in found] == [1, 2, 4, 8]
    assert all(isinstance(config, triton.Config) for config in found)


def test_several_devices_are_in_one_file(tmp_path):
    database = tmp_path / "tuner.db"
    store_winner(database, softmax(8, 512), "template=whole_row,num_warps=2")
    store_winner(database, softmax(8, 512), "template=whole_row,num_warps=4", device=H100)
    tuner.export("triton", tmp_path / "configs.py", db=str(database))
    assert sorted(load(tmp_path / "configs.py").TABLES) == ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"num_warps": 8', '"num_warps": 7', "num_warps: must be one of"),
        ("TABLES = {", "TABLE = {", "TABLES: is missing"),
        ("KEYS = {", "KEYS = {{", "is not Python"),
    ],
)
def test_a_file_that_triton_could_not_use_is_found(path, before, after, said):
    with pytest.raises(UsageError, match=said):
        TritonModule().validate({"": path.read_text().replace(before, after)})


def test_the_file_must_have_a_name_that_can_be_imported(winners, tmp_path):
    with pytest.raises(
        UsageError, match=r"--output: table.json cannot be imported; give a name such as tuned_configs.py"
    ):
        tuner.export("triton", tmp_path / "table.json", db=str(winners))


OTHER = """
import json, sys
import triton, triton.language as tl
import tuned_configs

def softmax_whole_row_kernel(x_ptr, out_ptr, x_row_stride, out_row_stride, cols, BLOCK_COLS: tl.constexpr,
                             USE_EXP2: tl.constexpr, RECOMPUTE_EXP: tl.constexpr):
    pass

launched = []
class Recorder:
    def run(self, *args, **kwargs):
        launched.append({k: v for k, v in kwargs.items() if isinstance(v, (bool, int))})
class Fp16:
    dtype = "torch.float16"
candidates = [triton.Config({"USE_EXP2": False, "RECOMPUTE_EXP": False}, num_warps=w) for w in (16, 32)]
never = lambda call, quantiles: sys.exit("a benchmark")
kernel = triton.jit(softmax_whole_row_kernel)
# What triton.autotune makes; 3.2's decorator does not pass do_bench on, and asks for a GPU's instead.
tuned = triton.runtime.autotuner.Autotuner(kernel, kernel.arg_names, candidates, ["cols"], None, None, do_bench=never)
filled = tuned_configs.preload(tuned, device="NVIDIA H200")
tuned.fn = Recorder()
tuned.run(Fp16(), Fp16(), 2048, 2048, 2048, BLOCK_COLS=2048, grid=(8,), warmup=False)
print(json.dumps({"filled": filled, "launched": launched, "triton": triton.__version__}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("other", other_tritons(), ids=lambda path: path.name)
def test_the_autotuner_of_other_versions_takes_it(path, tmp_path, other):
    (tmp_path / "tuned_configs.py").write_text(path.read_text())
    (tmp_path / "program.py").write_text(OTHER)
    done = run(tmp_path / "program.py", env=environment(other), cwd=tmp_path, limit_s=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (launch,) = found["launched"]
    assert (found["filled"], found["triton"]) == (4, other.name)
    assert {n: launch[n] for n in ("USE_EXP2", "num_warps", "BLOCK_COLS")} == {
        "USE_EXP2": True, "num_warps": 4, "BLOCK_COLS": 2048,
    }  # fmt: skip
