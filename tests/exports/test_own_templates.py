"""Winners of a user's own template, and configs that would be wrong at sizes other than the tuned one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tuner
from tests.checkout import checkout
from tests.exports.stored_winners import softmax, store_winner
from tests.exports.test_python_package import run_package
from tests.exports.test_triton_module import load
from tuner.errors import UsageError
from tuner.exports.rules import read_rules

# A row must fit into one block, and the size of the block is searched: what is right at 512 columns is not at 5000.
SPACE = """
operator: softmax
templates:
  row:
    source: row_softmax.py
    switches: {USE_EXP2: [true, false]}
    parameters:
      BLOCK_COLS: [512, 1024, 8192]
      num_warps: [1, 2, 4]
    tiles: {cols: BLOCK_COLS}
    max_tiles: {cols: 1}
    precision: {tiles: 1}
    plain: {USE_EXP2: false, BLOCK_COLS: 1024, num_warps: 4}
"""


@pytest.fixture
def space(tmp_path: Path) -> Path:
    folder = tmp_path / "space"
    folder.mkdir()
    source = (checkout() / "examples/my_space/row_softmax.py").read_text(encoding="utf-8")
    (folder / "row_softmax.py").write_text(source, encoding="utf-8")
    path = folder / "softmax.yaml"
    path.write_text(SPACE, encoding="utf-8")
    return path


@pytest.fixture
def database(space: Path, tmp_path: Path) -> str:
    path = tmp_path / "tuner.db"
    store_winner(path, softmax(64, 512), "template=row,BLOCK_COLS=512,num_warps=2", space=space)
    return str(path)


def test_the_kernel_of_a_template_of_ones_own_goes_under_its_autotuner(tmp_path):
    path = checkout() / "examples/my_space/softmax.yaml"
    store_winner(tmp_path / "tuner.db", softmax(512, 4096), "template=row,USE_EXP2=true,num_warps=8", space=path)
    result = tuner.export("triton", tmp_path / "configs.py", db=str(tmp_path / "tuner.db"))
    assert result.entries == 1 and result.left_out == ()
    (kernel,) = load(tmp_path / "configs.py").TABLES["NVIDIA H200"]
    (found,) = load(tmp_path / "configs.py").configs(kernel, device="NVIDIA H200")
    assert (found.kwargs, found.num_warps) == ({"USE_EXP2": True}, 8)
    tuner.export("fla", tmp_path / "fla", db=str(tmp_path / "tuner.db"))
    data = json.loads((tmp_path / "fla" / "NVIDIA_H200" / f"{kernel}.json").read_text())
    assert data["default_config"]["kwargs"] == {"USE_EXP2": True}


@pytest.mark.slow
def test_tiles_that_must_cover_a_row_are_not_taken_for_a_longer_one(database, tmp_path):
    tuner.export("python", tmp_path / "tuned_kernels", db=database)
    found = run_package(
        tmp_path / "tuned_kernels",
        """
kernels.use_device("NVIDIA H200")
warnings.simplefilter("ignore")
print(json.dumps({"errors": [softmax_error(4, 512), softmax_error(4, 400), softmax_error(4, 5000)],
                  "chosen": [chosen("softmax", torch.float16, 4, c) for c in (400, 513)]}))
""",
    )
    assert max(found["errors"]) < 3e-4
    assert found["chosen"] == [[False, [64, 512], {"BLOCK_COLS": 512, "num_warps": 2}], None]


def test_a_consumer_that_takes_a_config_for_any_size_does_not_get_such_a_one(database, tmp_path):
    with pytest.raises(UsageError, match="its tiles must cover cols, and the consumer may take it for any size"):
        tuner.export("fla", tmp_path / "fla", db=database)
    tuner.export("triton", tmp_path / "configs.py", db=database)  # exact keys, and the columns are among them
    with pytest.raises(UsageError, match="its tiles must cover cols, which is not part of the key"):
        tuner.export("triton", tmp_path / "other.py", db=database, settings={"key": "stride:row_stride"})


def test_which_axes_must_be_covered_follows_from_what_was_chosen():
    rules = read_rules(SPACE, "row")
    assert rules is not None
    assert rules.must_cover(["BLOCK_COLS", "num_warps"]) == ("cols",)
    assert rules.must_cover(["num_warps"]) == ()
    derived = SPACE.replace("tiles: {cols: BLOCK_COLS}", "tiles: {cols: SIZE}")
    derived = derived.replace("    precision", "    derived: {SIZE: BLOCK_COLS * 2}\n    precision")
    found = read_rules(derived, "row")
    assert found is not None and found.must_cover(["BLOCK_COLS"]) == ("cols",)
    shipped = (checkout() / "search_spaces/softmax.yaml").read_text(encoding="utf-8")
    for template in ("whole_row", "cooperative", "persistent"):  # the block follows from the row
        found = read_rules(shipped, template)
        assert found is not None and found.limits and found.must_cover(["SPLITS", "num_warps"]) == ()
