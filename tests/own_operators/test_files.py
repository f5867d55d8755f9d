"""Loading an operator from a file: what it is called, when it is another one, and what is said of a mistake."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tuner
from tests.programs import environment
from tuner.errors import ProblemError
from tuner.operators import get, names
from tuner.own_operators.files import find, load_same, loaded, spoken_name, stored_name

SIZES = {"rows": 8, "cols": 100}


def refused(text: str, *words: str) -> None:
    with pytest.raises(ProblemError) as error:
        tuner.make_problem(text, SIZES, "fp32")
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_a_file_operator_is_known_by_its_file_its_name_and_its_stored_name(write):
    text = write()
    operator = find(text)
    bare, _, digest = operator.name.partition("@")
    assert (bare, len(digest)) == ("scaled", 12)
    assert get("scaled") is get(operator.name) is operator is find(text.removesuffix(":scaled"))
    assert stored_name(text) == operator.name and stored_name("softmax") == "softmax" and stored_name(None) is None
    assert operator.name in names() and operator.name not in names(shipped=True)
    assert tuner.make_problem(text, SIZES, "fp32").operator == operator.name
    assert spoken_name(operator.name).endswith("scaled.py:scaled") and spoken_name("softmax") == "softmax"


def test_comments_and_kernels_do_not_change_what_an_operator_is_and_its_reference_does(write):
    first = find(write()).name
    assert find(write(("\ndef reference", "\n# A comment.\ndef reference"))).name == first
    assert find(write(("x * factor).to", "factor * x).to"))).name == first  # the kernel
    other = find(write(("return x * factor", "return factor * x"))).name
    assert other != first and get("scaled").name == other


def test_of_two_files_that_declare_the_same_the_one_named_last_has_the_kernels(write, tmp_path):
    first = find(write())
    (tmp_path / "copy").mkdir()
    copy = find(write(("(x * factor).to", "(x * factor * 2).to"), folder=tmp_path / "copy"))
    assert copy.name == first.name and copy.space_path == tmp_path / "copy" / "scaled.yaml"
    assert "factor * 2" in tuner.render(tuner.make_problem(f"{tmp_path}/copy/scaled.py", SIZES, "fp32"))
    assert "factor * 2" not in tuner.render(tuner.make_problem(f"{tmp_path}/scaled.py", SIZES, "fp32"))


def test_a_path_may_start_from_another_folder(write, tmp_path):
    write()
    assert find("scaled.py:scaled", tmp_path).name == find(f"{tmp_path}/scaled.py:scaled").name


def test_what_a_file_prints_leaves_the_answer_alone(write, capsys):
    find(write(("import tuner\n", "import tuner\nprint('loaded')\n")))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "loaded\n")


def test_another_process_loads_the_same_and_refuses_a_changed_file(write):
    find(write())
    (file,) = loaded()
    load_same((file,))
    write(("return x * factor", "return factor * x"))
    with pytest.raises(ProblemError, match="was changed while it was in use; run the command again"):
        load_same((type(file)(file.path, file.name, "0" * 64),))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("import tuner\n", "import tuner\nimport nothing_of_this_name\n"), (":6: raised ModuleNotFoundError:",)),
        (("def work(sizes):", "def work(sizes:"), ("scaled.py:", "raised SyntaxError")),
        (("return x * factor", "return x + nonsense"), (":20: reference() raised NameError: name 'nonsense'",)),
        (("return x * factor", "return (x * factor).sum()"), ("reference() gives", "but the file declares")),
        (("return x * factor", "return x.float() * factor"), ("torch.float32", "give a float64 tensor")),
        (('flops=sizes["rows"]', 'flops=sizes["row"]'), (":24: work() raised KeyError: 'row'",)),
        (("return tuner.Work(flops=", "return dict(flops="), ("return tuner.Work(flops=...)",)),
        (('name="scaled"', 'name="softmax"'), ("softmax is shipped; give yours another name",)),
        (('name="scaled"', 'name="Scaled"'), (":27:", "lower case letters, digits and _, but got 'Scaled'")),
        (('reduced="cols"', 'reduced="col"'), ("'col' is no size; it has rows, cols",)),
        (
            ('inputs={"x": ("rows", "cols")}', 'inputs={"x": ("rows", "colz")}'),
            ("x has the axis 'colz': there is no size colz (did you mean `cols`?)",),
        ),
        (('outputs={"out":', 'outputs={"x":'), ("x is an input and an output",)),
        (("    work=work,\n", "    work=work,\n    wrok=work,\n"), ("raised TypeError", "'wrok'")),
        (("scaled = tuner", "scalde = tuner"), ("declares no operator scaled (did you mean `scalde`?)",)),
    ],
)
def test_a_mistake_in_the_file_is_one_line_with_its_place(write, change, words):
    refused(write(change), "scaled.py", *words)


def test_a_file_that_is_not_there_or_says_nothing_is_refused(write, tmp_path):
    refused("nothing.py:scaled", "nothing.py: cannot be read: No such file", "FILE.py:NAME")
    (tmp_path / "empty.py").write_text("import tuner\n")
    refused(str(tmp_path / "empty.py"), "declares none; say which")
    with pytest.raises(
        ProblemError, match=r"scaled@0123456789ab is an operator of a file of your own; name it, as FIL"
    ):
        get("scaled@0123456789ab")


def test_a_file_operator_goes_by_the_rules_of_its_sizes(write):
    text = write(('reduced="cols"', 'reduced="cols",\n    requires=("rows <= cols",)'))
    with pytest.raises(ProblemError, match=r"scaled: `rows <= cols` is false \(rows=9, cols=4\)"):
        tuner.make_problem(text, {"rows": 9, "cols": 4}, "fp32")
    problem = tuner.make_problem(text, {"rows": 4, "cols": 9}, "fp16", {"factor": 3.0})
    operator = find(text)
    assert (operator.flops(problem), operator.bytes_moved(problem), operator.scalars(problem)) == (
        36,
        144,
        {"factor": 3.0},
    )


def test_listing_the_api_loads_no_torch(tmp_path):
    code = (
        "import sys, tuner; tuner.OwnOperator, tuner.Work, tuner.Size, tuner.TensorSpec; print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=tmp_path, check=True
    )
    assert done.stdout == "False\n"
