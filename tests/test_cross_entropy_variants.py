"""Templates of the cross-entropy and its gradient: right in the interpreter; what their spaces offer.

All of them are checked in bf16 where bugs are planted in them (``tests/mutation``).
"""

from __future__ import annotations

import pytest
import torch

import tuner
from tests.test_variants import assert_right
from tuner.loading import load_source
from tuner.operators import get
from tuner.shipped import variants_dir
from tuner.space import load_space
from tuner.targets import target

LOSS, GRADIENT = "cross_entropy", "cross_entropy_bwd"
SMOOTHED = {"label_smoothing": 0.1, "z_loss": 1e-3}
ROWS = {"rows": 300, "cols": 1000, "row_stride": 1040}
LONG = {"rows": 300, "cols": 2500}
ROW, LONG_ROW = {"rows": 1, "cols": 2500}, {"rows": 1, "cols": 8200}
SMALL = "BLOCK_COLS=1024,num_warps=4"

CASES = [
    (LOSS, ROWS, "fp32", {}, "template=whole_row,USE_EXP2=true,num_warps=1"),
    (LOSS, ROWS, "fp16", SMOOTHED, "template=whole_row,USE_EXP2=false,num_warps=1"),
    (LOSS, {**LONG, "row_stride": 2501}, "bf16", SMOOTHED, f"template=online,USE_EXP2=true,{SMALL}"),
    (LOSS, {**ROW, "row_stride": 2504}, "fp32", {}, f"template=online,USE_EXP2=false,{SMALL}"),
    (LOSS, LONG_ROW, "fp16", {}, f"template=split_row,USE_EXP2=true,SPLITS=2,{SMALL}"),
    (GRADIENT, ROW, "fp16", SMOOTHED, "template=row_tiles,USE_EXP2=true,BLOCK_COLS=512,num_warps=1"),
    (GRADIENT, LONG, "bf16", SMOOTHED, f"template=row_loop,USE_EXP2=true,STREAM_HINTS=true,{SMALL}"),
    (GRADIENT, ROW, "fp32", {}, f"template=row_loop,USE_EXP2=false,{SMALL}"),
]


def test_templates_give_right_results():
    assert_right(CASES, 300)


@pytest.mark.parametrize("name", [LOSS, GRADIENT])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (4096, 1024), (4096, 50257), (8192, 131072), (8, 262144)])
def test_every_shape_has_templates_a_plain_config_each_and_a_space_that_can_be_searched(name, dtype, rows, cols):
    space = load_space(name).bind(get(name).problem({"rows": rows, "cols": cols}, dtype), target("h200"))
    plain = space.plain()
    assert [config.template for config in plain] == list(space.templates) and len(plain) >= 1
    assert {config.values["USE_EXP2"] for config in plain} == {False}
    assert 2 <= space.size() <= 1000
    if name == LOSS:
        expected = {"online"} | ({"whole_row"} if cols <= 65536 else set())
        assert set(space.templates) == expected | ({"split_row"} if cols >= 8192 and rows <= 16 * 132 else set())


def test_realigned_rows_must_lie_alike_in_logits_and_gradient():
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    launch = load_source(variants_dir() / "cross_entropy_bwd" / "row_loop.py").launch
    names = ("label_smoothing", "z_loss", "BLOCK_COLS", "LOAD_STAGES", "NUM_PROGRAMS", "num_warps")
    given = {**dict.fromkeys(names, 1), **dict.fromkeys(("USE_EXP2", "STREAM_HINTS", "REALIGN"), True)}
    x, row = torch.zeros(2, 8), torch.zeros(2)
    with pytest.raises(ValueError, match="the rows of dlogits are 5 elements apart, those of logits 8"):
        launch(x[:, :5], row.long(), row, row, torch.zeros(2, 5), **given)


@pytest.mark.parametrize("name", ["online", "split_row", "whole_row"])
@pytest.mark.parametrize(
    ("smoothing", "given", "why"),
    [
        (False, 0.1, "label_smoothing is 0.1, but this kernel is for 0; render one for others"),
        (True, 0.0, "label_smoothing is 0, but this kernel is for numbers above 0; render one for 0"),
    ],
)
def test_a_rendered_kernel_refuses_a_smoothing_that_it_would_get_wrong(tmp_path, name, smoothing, given, why):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    problem = get(LOSS).problem({"rows": 2, "cols": 8192}, "bf16", {"label_smoothing": 0.5} if smoothing else {})
    path = tmp_path / f"{name}.py"
    path.write_text(tuner.render(problem, config=f"template={name}", device="h200"))
    made, x, row = load_source(path), torch.zeros(2, 8192), torch.zeros(2)
    with pytest.raises(ValueError, match=f"^{why}$"):
        made.launch(x, row.long(), row, row, label_smoothing=given, z_loss=0.0, **made.CONFIG)


def test_switches_follow_the_problem():
    def only(shape, options):
        space = load_space(LOSS).bind(get(LOSS).problem(shape, "bf16", options), target("h200"))
        (config,) = {config for config in space.plain() if config.template == "online"}
        return config.values["SMOOTHING"], config.values["REALIGN"]

    assert only({"rows": 4, "cols": 4096}, {}) == (False, False)
    assert only({"rows": 4, "cols": 4097}, {}) == (False, True)
    assert only({"rows": 4, "cols": 4097, "row_stride": 4104}, {"z_loss": 1e-4}) == (False, False)
    assert only({"rows": 4, "cols": 4096}, {"label_smoothing": 0.1}) == (True, False)
