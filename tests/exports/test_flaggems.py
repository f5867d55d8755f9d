"""The FlagGems fragment: by its own loader where it is there, and by its rules written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import tuner
from tests.exports.consumers import consumers
from tests.exports.stored_winners import H100, attention, store_winner
from tests.programs import environment, run
from tuner.errors import UsageError
from tuner.exports.flaggems import FlagGems


@pytest.fixture(scope="module")
def fragment(winners: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gems") / "tune_configs.yaml"
    tuner.export("flaggems", path, db=str(winners), seed=True)
    return path


def test_it_is_written_as_a_start_only(winners, tmp_path):
    with pytest.raises(
        UsageError, match=r"flag-gems 5.0.2 runs a kernel of its own, .* add --seed to write them as that"
    ):
        tuner.export("flaggems", tmp_path / "tune_configs.yaml", db=str(winners))


def test_the_list_is_short_and_has_known_fields_only(fragment):
    assert yaml.safe_load(fragment.read_text()) == {
        "attention": [
            {"META": {"BLOCK_M": 128, "BLOCK_N": 32, "PRE_LOAD_V": False}, "num_warps": 4, "num_stages": 2},
        ]
    }


def test_what_the_consumers_filter_drops_is_left_out(winners, tmp_path):
    result = tuner.export("flaggems", tmp_path / "t.yaml", db=str(winners), seed=True, operator="attention_fwd")
    assert result.entries == 4
    assert {item.why for item in result.left_out} == {"FlagGems' keep() drops BLOCK_M=64, BLOCK_N=32, num_warps=4"}


def test_one_file_is_for_one_device(tmp_path):
    database = tmp_path / "tuner.db"
    for device in (H100, None):
        where = {} if device is None else {"device": device}
        store_winner(database, attention(256), "template=pointer,BLOCK_M=128,BLOCK_N=32,num_warps=4", **where)
    with pytest.raises(
        UsageError, match="one file is for one device, but there are winners of NVIDIA H100 80GB HBM3, NVI"
    ):
        tuner.export("flaggems", tmp_path / "t.yaml", db=str(database), seed=True)
    assert tuner.export("flaggems", tmp_path / "t.yaml", db=str(database), seed=True, device="H200").entries == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("attention: []", "FlagGems would not load it as meant"),
        ("attention: [{META: {BLOCK_M: 64, BLOCK_N: 32, PRE_LOAD_V: false}, num_warps: 4, num_stages: 2}]", "drops"),
        (
            "attention: [{META: {BLOCK_M: 128, BLOCK_N: 32, PRE_LOAD_V: false}, num_warps: 4, num_stages: 2, a: 1}]",
            "load",
        ),
        ("attention: [", "FlagGems would not load it as meant"),
    ],
)
def test_a_list_that_would_leave_the_consumer_without_a_config_is_found(text, said):
    with pytest.raises(UsageError, match=said):
        FlagGems().validate({"": text})


PROGRAM = """
import importlib.util, json, pathlib, sys, types
import triton

root = pathlib.Path(sys.argv[1]) / "flag_gems" / "runtime"

def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

# The package asks for a GPU when it is imported, so its two files are loaded with a stand-in for the rest.
utils = load("backend_utils", root / "backend" / "backend_utils.py")
table = utils.get_tune_config(file_path=sys.argv[2])
for name in ("gems", "gems.backend", "gems.backend.device"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["gems"].__path__ = sys.modules["gems.backend"].__path__ = []
backend = sys.modules["gems"].backend = sys.modules["gems.backend"]
class Detector:
    vendor_name = "nvidia"
class Event:
    has_arch = False
sys.modules["gems.backend.device"].DeviceDetector = Detector
backend.device, backend.BackendArchEvent = sys.modules["gems.backend.device"], Event
backend.get_tune_config = lambda vendor: table
backend.get_heuristic_config = lambda vendor: {}
backend.get_expand_config = lambda **more: {}
loader = load("gems.configloader", root / "configloader.py").ConfigLoader()
found = loader.get_tuned_config("attention")
print(json.dumps([[dict(c.kwargs), c.num_warps, c.num_stages, c.num_ctas] for c in found]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("package", consumers("flag-gems"))
def test_the_consumers_own_loader_takes_it(fragment, tmp_path, package):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run(tmp_path / "program.py", package, fragment.parent, env=environment(), cwd=tmp_path, limit_s=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [
        [{"BLOCK_M": 128, "BLOCK_N": 32, "PRE_LOAD_V": False}, 4, 2, 1],
    ]
    # Its own filter, as in ops/flash_kernel.py.
    source = (package / "flag_gems" / "ops" / "flash_kernel.py").read_text()
    assert "return (BM, BN, w) in ((128, 32, 4), (128, 128, 8)) or (" in source
