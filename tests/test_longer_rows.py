"""A kernel that is given longer rows than it was rendered for says so: it would compute a part of them."""

from __future__ import annotations

import inspect

import pytest
import torch

from tuner.loading import load_source
from tuner.operators import get, names
from tuner.shipped import variants_dir
from tuner.space import load_space

WHOLE_ROWS = [
    (operator, template)
    for operator in names(shipped=True)
    for template, space in load_space(operator).templates.items()
    if "cols" in space.max_tiles
]
# 64 columns a block, in as many blocks as the template has.
GIVEN = {"BLOCK_COLS": 64, "SPLITS": 2, "CLUSTER": 2}
HELD = {"whole_row": 64, "several_rows": 64, "persistent": 64, "cooperative": 128, "cluster": 128}


def refused(operator, template, shape, dtype, given):
    pytest.importorskip("triton", reason="Triton runs on Linux only")
    launch = load_source(variants_dir() / operator / f"{template}.py").launch
    problem = get(operator).problem(shape, dtype)
    outputs = {name: torch.empty(spec.shape) for name, spec in get(operator).output_specs(problem).items()}
    tensors = get(operator).timing_inputs(problem, 0, "cpu") | outputs | get(operator).scalars(problem)
    keywords = {p.name for p in inspect.signature(launch).parameters.values() if p.kind is p.KEYWORD_ONLY}
    values = {name: given.get(name, 0) for name in keywords - set(tensors)}
    with pytest.raises(ValueError) as caught:
        launch(**tensors, **values)
    return str(caught.value)


def test_every_template_that_holds_a_row_is_here():
    assert len(WHOLE_ROWS) == 12 and {template for _, template in WHOLE_ROWS} == set(HELD)


@pytest.mark.parametrize(("operator", "template"), WHOLE_ROWS)
def test_a_row_that_is_longer_than_what_a_kernel_holds_is_refused_with_the_numbers(operator, template):
    held = HELD[template]
    shape = {"rows": 2, "cols": held + 1, **({"k": 2} if operator == "softmax_topk" else {})}
    said = refused(operator, template, shape, "fp32", GIVEN)
    assert said == f"a row has {held + 1} columns, but this kernel holds {held}; render one for it"


@pytest.mark.parametrize("template", ["online", "split_row"])
@pytest.mark.parametrize(("cols", "dtype"), [(65537, "bf16"), (64, "fp32")])
def test_columns_that_do_not_fit_into_a_key_of_32_bits_are_refused(template, cols, dtype):
    said = refused("softmax_topk", template, {"rows": 1, "cols": cols, "k": 2}, dtype, {**GIVEN, "WIDE": False})
    full = {"bf16": "torch.bfloat16", "fp32": "torch.float32"}[dtype]
    assert said == f"{cols} columns of {full} need WIDE keys, which this kernel lacks; render one for it"
