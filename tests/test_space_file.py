from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.spaces import SPACE, TEMPLATE, lookup, write_space
from tuner.errors import SpaceError
from tuner.space_file import SpaceFile, read_space_file


def read(folder: Path, text: str) -> SpaceFile:
    return read_space_file(write_space(folder, text), lookup, folder / "shipped")


def refusal(folder: Path, text: str) -> SpaceError:
    with pytest.raises(SpaceError) as caught:
        read(folder, text)
    assert "\n" not in str(caught.value)
    assert caught.value.path == str(folder / "toy.yaml")
    return caught.value


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def test_a_valid_file_says_what_is_searched_and_what_follows(tmp_path: Path) -> None:
    tiled = read(tmp_path, SPACE).templates["tiled"]
    assert tiled.choices == {
        "FAST": (True, False),
        "BLOCK": (64, 128, 256),
        "num_warps": (1, 2, 4),
        "PER_SM": (1, 2),
    }
    assert tiled.searched_switches == ("FAST",)
    assert {name: clause.text for name, clause in tiled.fixed.items()} == {"IS_CAUSAL": "causal"}
    assert [clause.text for clause in tiled.constraints] == [
        "BLOCK <= next_power_of_2(cols)",
        "BLOCK >= 64 * num_warps or IS_CAUSAL",
    ]
    assert tiled.plain["num_warps"] == 4
    assert tiled.source == tmp_path / "tiled.py"
    assert tiled.combinations == 36


def test_the_digest_is_of_what_the_file_says_and_not_of_how(tmp_path: Path) -> None:
    digest = read(tmp_path, SPACE).digest
    assert read(tmp_path, SPACE.replace("[1, 2]", "[ 1,  2 ]  # both")).digest == digest
    assert read(tmp_path, SPACE.replace("[1, 2]", "[1, 2, 3]")).digest != digest


def test_a_source_beside_the_file_comes_before_a_shipped_one(tmp_path: Path) -> None:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / "tiled.py").write_text(TEMPLATE)
    path = write_space(tmp_path)
    assert read_space_file(path, lookup, shipped).templates["tiled"].source == tmp_path / "tiled.py"
    (tmp_path / "tiled.py").unlink()
    assert read_space_file(path, lookup, shipped).templates["tiled"].source == shipped / "tiled.py"


# What is replaced in SPACE, by what; then where the error points (a part of its line, and the key), and what it says.
REFUSED = {
    "an unknown key": (
        "    constraints:",
        "    constrains:",
        "    constrains:",
        "templates.tiled.constrains",
        "unknown key (did you mean `constraints`?); known: source, where, needs_gpu, switches",
    ),
    "an unknown key of the file": (
        "operator: toy",
        "operator: toy\ntemplate: {}",
        "template: {}",
        "template",
        "unknown key (did you mean `templates`?); known: operator, templates",
    ),
    "an unknown operator": ("operator: toy", "operator: toi", "operator: toi", "operator", "did you mean toy?"),
    "an operator that is no text": ("operator: toy", "operator: 3", "operator: 3", "operator", "must be text"),
    "no source": ("    source: tiled.py\n", "", "  tiled:", "templates.tiled", "the key `source` is missing; add it"),
    "a list where a mapping belongs": (
        "    tiles: {cols: BLOCK}",
        "    tiles: [cols]",
        "    tiles:",
        "templates.tiled.tiles",
        "must be a mapping (`name: value`), but is ['cols']",
    ),
    "a mapping where a list belongs": (
        "      - BLOCK <= next_power_of_2(cols)\n      - BLOCK >= 64 * num_warps or IS_CAUSAL\n",
        "      small: BLOCK <= 8\n",
        "    constraints:",
        "templates.tiled.constraints",
        "must be a list (`[a, b]`), but is",
    ),
    "an empty section": (
        "    tiles: {cols: BLOCK}",
        "    tiles:",
        "    tiles:",
        "templates.tiled.tiles",
        "but is nothing",
    ),
    "a parameter without a list": (
        "BLOCK: [64, 128, 256]",
        "BLOCK: 64",
        "BLOCK: 64",
        "templates.tiled.parameters.BLOCK",
        "must be a list of choices, but is 64",
    ),
    "no choices": (
        "BLOCK: [64, 128, 256]",
        "BLOCK: []",
        "BLOCK: []",
        "templates.tiled.parameters.BLOCK",
        "has no choices",
    ),
    "a choice given twice": (
        "BLOCK: [64, 128, 256]",
        "BLOCK: [64, 128, 64]",
        "BLOCK: [",
        "templates.tiled.parameters.BLOCK[2]",
        "64 is given twice",
    ),
    "choices of two kinds": (
        "BLOCK: [64, 128, 256]",
        "BLOCK: [1, true]",
        "BLOCK: [",
        "templates.tiled.parameters.BLOCK[1]",
        "True is not of the kind of 1",
    ),
    "a choice that is a list": (
        "BLOCK: [64, 128, 256]",
        "BLOCK: [[64]]",
        "BLOCK: [",
        "templates.tiled.parameters.BLOCK[0]",
        "[64] cannot be a choice",
    ),
    "a choice that --config cannot name": (
        "FAST: [true, false]",
        "FAST: ['a,b', c]",
        "FAST: [",
        "templates.tiled.switches.FAST[0]",
        "'a,b' cannot be written in --config",
    ),
    "text that reads as a number": (
        "FAST: [true, false]",
        "FAST: ['16', c]",
        "FAST: [",
        "templates.tiled.switches.FAST[0]",
        "'16' cannot be written in --config",
    ),
    "warps that are no power of two": (
        "num_warps: [1, 2, 4]",
        "num_warps:\n      - 1\n      - 3",
        "      - 3",
        "templates.tiled.parameters.num_warps[1]",
        "3 is not a power of two from 1 to 32",
    ),
    "too many warps": ("num_warps: [1, 2, 4]", "num_warps: [64]", "num_warps: [64]", None, "64 is not a power of two"),
    "a constraint that names nothing known": (
        "- BLOCK <= next_power_of_2(cols)",
        "- BLOK <= next_power_of_2(cols)",
        "- BLOK",
        "templates.tiled.constraints[0]",
        "names `BLOK`, which is not known here (did you mean `BLOCK`?); known: rows, cols, causal, dtype, itemsize, ",
    ),
    "a constraint that cannot be read": (
        "- BLOCK <= next_power_of_2(cols)",
        "- BLOCK <= (cols",
        "- BLOCK <= (cols",
        "templates.tiled.constraints[0]",
        "`BLOCK <= (cols`: cannot be read: '(' was never closed",
    ),
    "a constraint that would run code": (
        "- BLOCK <= next_power_of_2(cols)",
        "- __import__('os').system('x') == 0",
        "- __import__",
        "templates.tiled.constraints[0]",
        "is not part of the language",
    ),
    "a condition on a parameter": (
        "where: cols <= 65536",
        "where: BLOCK <= 65536",
        "where: BLOCK",
        "templates.tiled.where",
        "names `BLOCK`, which is not known here",
    ),
    "a fixed switch over a parameter": (
        "IS_CAUSAL: causal",
        "IS_CAUSAL: BLOCK > 3",
        "IS_CAUSAL: BLOCK",
        "templates.tiled.switches.IS_CAUSAL",
        "names `BLOCK`, which is not known here",
    ),
    "a derived value over nothing known": (
        "PROGRAMS: sms * PER_SM",
        "PROGRAMS: sm * PER_SM",
        "PROGRAMS: sm *",
        "templates.tiled.derived.PROGRAMS",
        "names `sm`, which is not known here (did you mean `sms`?)",
    ),
    "derived values in a circle": (
        "PROGRAMS: sms * PER_SM",
        "PROGRAMS: OTHER + 1\n      OTHER: PROGRAMS - 1",
        "PROGRAMS: OTHER",
        "templates.tiled.derived.PROGRAMS",
        "goes in a circle with PROGRAMS, OTHER",
    ),
    "a template name that is a path": (
        "  tiled:",
        "  ../tiled:",
        "  ../tiled:",
        "templates.../tiled",
        "is no name for a template; use at most 64 letters, digits, _ . and -",
    ),
    "no tiles of the axis that is reduced": (
        "    tiles: {cols: BLOCK}\n",
        "    tiles: {rows: 1}\n",
        "    tiles: {rows: 1}",
        "templates.tiled.tiles",
        "does not name cols; say how many elements of cols a tile has",
    ),
    "a tile of an unknown axis": (
        "tiles: {cols: BLOCK}",
        "tiles: {cols: BLOCK, columns: BLOCK}",
        "tiles: {cols",
        "templates.tiled.tiles.columns",
        "unknown name",
    ),
    "an unknown field of the precision": (
        "      p: bf16",
        "      q: bf16",
        "      q: bf16",
        "templates.tiled.precision.q",
        "unknown name; known: input, output, p, dot, tiles, prescaled, l_from_rounded_p",
    ),
    "a plain config without a value": (
        "      num_warps: 4\n",
        "",
        "    plain:",
        "templates.tiled.plain",
        "gives no value for `num_warps`; add one of 1, 2, 4",
    ),
    "a plain value that is no choice": (
        "num_warps: 4\n",
        "num_warps: 8\n",
        "num_warps: 8",
        "templates.tiled.plain.num_warps",
        "8 is not among its choices; use 1, 2, 4",
    ),
    "a plain value of another kind": (
        "PER_SM: 2\n",
        "PER_SM: true\n",
        "PER_SM: true",
        "templates.tiled.plain.PER_SM",
        "True is not among its choices",
    ),
    "a plain name that nothing has": (
        "PER_SM: 2\n",
        "PER_SM: 2\n      num_warp: 4\n",
        "num_warp: 4",
        "templates.tiled.plain.num_warp",
        "unknown name (did you mean `num_warps`?)",
    ),
    "a plain value for a fixed switch": (
        "PER_SM: 2\n",
        "PER_SM: 2\n      IS_CAUSAL: true\n",
        "IS_CAUSAL: true",
        "templates.tiled.plain.IS_CAUSAL",
        "the problem fixes this switch; remove it from `plain`",
    ),
    "a parameter named like a size": (
        "PER_SM: [1, 2]",
        "PER_SM: [1, 2]\n      cols: [1]",
        "cols: [1]",
        "templates.tiled.parameters.cols",
        "the name is taken: it is a name of the problem or device",
    ),
    "a parameter named like a switch": (
        "PER_SM: [1, 2]",
        "PER_SM: [1, 2]\n      FAST: [1]",
        "FAST: [1]",
        "templates.tiled.parameters.FAST",
        "the name is taken: it is one of this template's switches",
    ),
    "a parameter whose name is none": (
        "PER_SM: [1, 2]",
        "PER SM: [1, 2]",
        "PER SM",
        "templates.tiled.parameters.PER SM",
        "is not a name",
    ),
    "a key given twice": (
        "PER_SM: [1, 2]",
        "PER_SM: [1, 2]\n      BLOCK: [1]",
        "BLOCK: [1]",
        "templates.tiled.parameters.BLOCK",
        "given twice (first in line 10); keep one of them",
    ),
    "a key that is no text": ("PER_SM: [1, 2]", "1: [1, 2]", "      1:", None, "the key 1 is not text"),
    "a tag": ("PER_SM: [1, 2]", "PER_SM: !!python/name:os.system", "PER_SM", None, "is not allowed"),
    "infinity": ("PER_SM: [1, 2]", "PER_SM: [.inf]", "PER_SM", None, ".inf is not a number that can be used"),
    "YAML that cannot be read": ("PER_SM: [1, 2]", "PER_SM: [1, 2", "    derived:", "", "not valid YAML"),
    "a tab": ("      PER_SM: [1, 2]", "\tPER_SM: [1, 2]", "\tPER_SM", "", "not valid YAML"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mistake_is_refused_with_file_line_key_and_remedy(tmp_path: Path, case: str) -> None:
    old, new, at, key, says = REFUSED[case]
    assert SPACE.count(old) == 1
    text = SPACE.replace(old, new)
    error = refusal(tmp_path, text)
    assert says in str(error)
    assert error.line == line_of(text, at)
    assert error.remedy
    if key is not None:
        assert error.key == key


def test_a_missing_source_says_where_it_was_looked_for(tmp_path: Path) -> None:
    error = refusal(tmp_path, SPACE.replace("source: tiled.py", "source: tilde.py"))
    assert error.line == 4
    assert error.problem == "no such file: tilde.py"
    assert error.remedy == f"looked for {tmp_path / 'tilde.py'}, {tmp_path / 'shipped' / 'tilde.py'}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("- a\n", "must be a mapping"),
        ("operator: toy\n", "the key `templates` is missing"),
        ("operator: toy\ntemplates: {}\n", "is empty; name at least one template"),
        ("operator: toy\ntemplates: {a: }\n", "must be a mapping"),
        ("a: 1\n---\nb: 2\n", "expected a single document"),
        ("a: \x01\n", "special characters are not allowed"),
        ("a: *b\n", "found undefined alias"),
        ("a: &a [*a]\n", "nested deeper than 20 levels"),
        ("[" * 3000, "nested deeper than 20 levels"),
        ("a: " + "9" * 6000, "is not a number that can be used"),
    ],
)
def test_a_file_that_is_no_space_is_refused(tmp_path: Path, text: str, says: str) -> None:
    assert says in str(refusal(tmp_path, text))


def test_aliases_cannot_make_a_small_file_large(tmp_path: Path) -> None:
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 15)]
    start = time.perf_counter()
    error = refusal(tmp_path, "\n".join(rows))
    assert time.perf_counter() - start < 2
    assert "more than 20000 values" in str(error)


def test_a_file_above_one_mebibyte_is_not_read(tmp_path: Path) -> None:
    assert "larger than 524288 bytes" in str(refusal(tmp_path, SPACE + "#" * (1 << 19)))


def test_a_file_that_is_not_utf8_says_in_which_line(tmp_path: Path) -> None:
    path = write_space(tmp_path)
    path.write_bytes(b"operator: toy\n# caf\xe9\n")
    with pytest.raises(SpaceError) as caught:
        read_space_file(path, lookup, tmp_path)
    assert (caught.value.line, caught.value.problem) == (2, "not UTF-8")


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff" + SPACE).digest == read(tmp_path, SPACE).digest


def test_a_folder_and_a_missing_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="is a folder, not a file"):
        read_space_file(tmp_path, lookup, tmp_path)
    with pytest.raises(SpaceError, match="no such file"):
        read_space_file(tmp_path / "none.yaml", lookup, tmp_path)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.symlink_to(path)
    with pytest.raises(SpaceError, match="cannot be read: Too many levels of symbolic links"):
        read_space_file(path, lookup, tmp_path)


def test_literal_formats_of_the_precision_need_no_quotes(tmp_path: Path) -> None:
    precision = read(tmp_path, SPACE).templates["tiled"].precision
    assert precision["p"].evaluate({}) == "bf16"
    assert precision["dot"].evaluate({}) == "16bit"
