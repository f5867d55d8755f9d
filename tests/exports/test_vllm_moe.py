"""vLLM's fused MoE tables: by vLLM's own loader where it is there, and by its rules written down."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import tuner
from tests.checkout import checkout
from tests.exports.consumers import consumers
from tests.exports.stored_winners import ESTIMATED, H100, softmax, store_winner
from tuner.errors import UsageError
from tuner.exports.device_names import moe_name
from tuner.exports.vllm_moe import VllmMoe
from tuner.problem import Problem
from tuner.targets import target

NAME = "E=8,N=3584,device_name=NVIDIA_H200.json"
PLAIN = "BLOCK_SIZE_M=16,BLOCK_SIZE_N=64,BLOCK_SIZE_K=64,GROUP_SIZE_M=8,num_warps=4,num_stages=3"
LARGE = "BLOCK_SIZE_M=32,BLOCK_SIZE_N=128,BLOCK_SIZE_K=64,GROUP_SIZE_M=16,num_warps=8,num_stages=4"
GOOD = {
    "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 3,
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.operators._REGISTERED", {})
    monkeypatch.setattr("tuner.own_operators.files._LOADED", {})


def operator() -> str:
    return f"{checkout() / 'examples/moe/moe.py'}:moe_up"


def moe(tokens: int, dtype: str = "bf16", **sizes: int) -> Problem:
    shape = {"topk": 2, "experts": 8, "hidden": 4096, "intermediate": 3584, **sizes, "tokens": tokens}
    return tuner.make_problem(operator(), shape, dtype)


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Winners at four numbers of tokens, with the times of both configs at each."""
    for tokens, small, large in ((1, 10.0, 15.0), (64, 20.0, 24.0), (256, 66.0, 60.0), (4096, 900.0, 600.0)):
        store_winner(tmp_path / "tuner.db", moe(tokens), PLAIN, *[LARGE][: tokens > 8], us={PLAIN: small, LARGE: large})
    return str(tmp_path / "tuner.db")


def export(database: str, path: Path, **rest: object) -> tuner.ExportResult:
    return tuner.export("vllm_moe", path, db=database, seed=True, **rest)


def loaded(path: Path) -> dict[int, dict[str, int]]:
    """As vLLM's loader reads a file: every key is a number."""
    return {int(key): value for key, value in json.loads(path.read_text()).items()}


def test_a_file_has_the_name_the_keys_and_the_values_that_vllm_looks_for(database, tmp_path):
    result = export(database, tmp_path / "configs")
    assert [file.name for file in result.files] == [NAME, "tuner.provenance.json"]
    table = loaded(tmp_path / "configs" / NAME)
    assert list(table) == [1, 64, 256, 4096] and table[1] == GOOD == table[64]
    assert table[4096] == {
        **GOOD,
        "BLOCK_SIZE_M": 32,
        "BLOCK_SIZE_N": 128,
        "GROUP_SIZE_M": 16,
        "num_warps": 8,
        "num_stages": 4,
    }
    assert "EXPERTS" not in table[1]  # what follows from the shape is the caller's
    provenance = json.loads((tmp_path / "configs/tuner.provenance.json").read_text())
    assert [entry["at"] for entry in provenance["entries"]] == [f"{NAME}#{m}" for m in (1, 64, 256, 4096)]
    assert provenance["entries"][0]["problem"]["operator"] == moe(1).operator and provenance["seed"] is True
    assert any("VLLM_TUNED_CONFIG_FOLDER=configs" in note for note in result.notes)


def test_what_the_nearest_m_costs_is_simulated_with_each_m_left_out(database, tmp_path):
    (loss,) = export(database, tmp_path / "configs").losses
    # Without 1: 64's config, at no loss. 64: 1's, none. 256: 64's, 66 for 60. 4096: 256's, none.
    assert loss.shapes == 4 and loss.measured == 4
    assert loss.worst == pytest.approx(0.1) and loss.mean == pytest.approx(0.025)
    assert loss.text.startswith("vLLM, nearest M: expected loss 2.5%")


def test_it_is_a_start_and_written_only_as_one(database, tmp_path):
    with pytest.raises(UsageError, match=r"vLLM 0\.33 .* runs a kernel of its own, .* add --seed"):
        tuner.export("vllm_moe", tmp_path / "configs", db=database)
    assert not (tmp_path / "configs").exists()


def test_the_same_database_gives_the_same_bytes_and_a_foreign_file_stays(database, tmp_path):
    first, second = tmp_path / "one" / "configs", tmp_path / "two" / "configs"
    export(database, first)
    export(database, second)
    assert all((second / p.name).read_bytes() == p.read_bytes() for p in first.iterdir())
    report = tuner.check_export(first, db=database)
    assert report.ok, report.checks
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / NAME).write_text("{}")
    with pytest.raises(UsageError, match="was not written by `tuner export`, so it is not replaced"):
        export(database, tmp_path / "three")
    assert (tmp_path / "three" / NAME).read_text() == "{}"


def test_sizes_of_other_names_are_said_and_may_be_expressions(database, tmp_path):
    result = export(database, tmp_path / "configs", settings={"N": "2 * intermediate", "E": "experts * 4"})
    assert result.files[0].name == "E=32,N=7168,device_name=NVIDIA_H200.json"
    with pytest.raises(UsageError, match=r"M: `tokns`: nothing is named `tokns` \(did you mean `tokens`\?\).*--set M="):
        export(database, tmp_path / "other", settings={"M": "tokns"})


def test_of_winners_for_one_place_one_is_taken_and_the_others_are_named(database, tmp_path):
    store_winner(database, moe(64, "fp16"), LARGE, us={LARGE: 30.0}, stack=ESTIMATED)
    store_winner(database, moe(64, hidden=2048), LARGE, us={LARGE: 30.0}, device=H100)
    result = export(database, tmp_path / "configs", estimated=True)
    assert loaded(tmp_path / "configs" / NAME)[64] == GOOD  # the measured one
    (left,) = result.left_out
    assert "fp16" in left.what and f"has the place of {moe(64).label} ({NAME}, M=64), whose config is used" in left.why
    assert {f.name for f in result.files} == {
        NAME, "E=8,N=3584,device_name=NVIDIA_H100_80GB_HBM3.json", "tuner.provenance.json",
    }  # fmt: skip


def test_operators_of_other_kinds_have_no_place(tmp_path):
    store_winner(tmp_path / "tuner.db", softmax(64, 512), "template=whole_row,num_warps=4")
    with pytest.raises(UsageError, match=r"no winner has a place in vLLM's tables: .* has no BLOCK_SIZE_M"):
        export(str(tmp_path / "tuner.db"), tmp_path / "configs")


def test_an_amd_gpu_is_left_out(tmp_path):
    store_winner(tmp_path / "tuner.db", moe(64), PLAIN, device=target("mi300x"), stack=ESTIMATED)
    with pytest.raises(UsageError, match="vLLM names AMD's GPUs by a table of its own"):
        export(str(tmp_path / "tuner.db"), tmp_path / "configs", estimated=True)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA_H100_80GB_HBM3"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA_A100-SXM4-80GB"),
        ("NVIDIA H200 NVL", "NVIDIA_H200"),
        ("NVIDIA H200", "NVIDIA_H200"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA_GeForce_RTX_4090"),
    ],
)
def test_devices_are_spelt_as_in_vllm(model, name):
    assert moe_name(model) == name


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("E=8,N=3584,device_name=NVIDIA H200.json", {"1": GOOD}, "is no name that vLLM looks for"),
        (NAME, {"1": GOOD, "triton_version": "3.9.0"}, "triton_version"),
        (NAME, {"1": {**GOOD, "BLOCK_SIZE_K": 48}}, "1.BLOCK_SIZE_K: Value error, must be a power of two"),
        (NAME, {"1": {n: v for n, v in GOOD.items() if n != "BLOCK_SIZE_N"}}, "1.BLOCK_SIZE_N: Field required"),
        (NAME, {"1": {**GOOD, "num_warps": 3}}, "1.num_warps"),
        (NAME, {"1": {**GOOD, "BLOCK_M": 64}}, "1.BLOCK_M: Extra inputs are not permitted"),
        (NAME, {"1": {**GOOD, "num_stages": "3"}}, "1.num_stages"),
        (NAME, {}, "has no config"),
    ],
)
def test_what_vllm_would_break_on_is_refused_with_its_place(file, content, words):
    with pytest.raises(UsageError) as error:
        VllmMoe().validate({file: json.dumps(content)})
    assert words in str(error.value) and file in str(error.value) and "\n" not in str(error.value)


def test_doctor_says_which_name_is_looked_for_and_what_is_in_the_folder(database, tmp_path, monkeypatch):
    export(database, tmp_path / "configs")
    monkeypatch.setattr("tuner.nvml.device_names", lambda: ("NVIDIA H100 80GB HBM3",))
    monkeypatch.delenv("VLLM_TUNED_CONFIG_FOLDER", raising=False)
    checks = {check.name: check for check in VllmMoe().examine()}
    assert checks["file name"].value == "E=...,N=...,device_name=NVIDIA_H100_80GB_HBM3.json"
    assert checks["VLLM_TUNED_CONFIG_FOLDER"].status == "warning"
    monkeypatch.setenv("VLLM_TUNED_CONFIG_FOLDER", str(tmp_path / "configs"))
    found = {check.name: check for check in VllmMoe().examine()}[NAME]
    assert (found.status, found.value) == ("warning", "of NVIDIA_H200")
    monkeypatch.setattr("tuner.nvml.device_names", lambda: ("NVIDIA H200",))
    assert {check.name: check for check in VllmMoe().examine()}[NAME].value == "4 configs"


@pytest.mark.parametrize("folder", consumers("vllm"))
def test_vllms_own_loader_reads_it(folder, database, tmp_path, monkeypatch):
    """Its functions are taken out of the file: importing vLLM needs a GPU."""
    export(database, tmp_path / "configs")
    source = (folder / "vllm/model_executor/layers/fused_moe/fused_moe.py").read_text(encoding="utf-8")
    functions = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name in ("get_config_file_name", "get_moe_configs")
    ]
    for function in functions:
        function.decorator_list = []
    names = {
        "json": json,
        "os": os,
        "Any": Any,
        "logger": SimpleNamespace(info_once=lambda *a, **k: None, warning_once=lambda *a, **k: None),
        "__file__": str(tmp_path / "nothing.py"),
        "envs": SimpleNamespace(VLLM_TUNED_CONFIG_FOLDER=str(tmp_path / "configs"), VLLM_BATCH_INVARIANT=False),
        "get_device_name_as_file_name": lambda: "NVIDIA_H200_NVL",
    }
    code = ast.fix_missing_locations(ast.Module(cast(list[ast.stmt], functions), []))
    exec(compile(code, "vllm", "exec"), names)
    found = names["get_moe_configs"](8, 3584, None)
    assert found == loaded(tmp_path / "configs" / NAME)
    assert names["get_moe_configs"](8, 7168, None) is None
