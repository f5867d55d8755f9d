"""The command line: what it prints, exit codes, and one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.cli import run


def ran(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = run([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_an_export_says_what_it_wrote_and_what_the_rule_costs(capsys, winners, tmp_path):
    code, out, err = ran(capsys, "export", "--format", "python", "-o", tmp_path / "kernels", "--db", winners)
    assert code == 0 and err == ""
    assert out.splitlines() == [
        f"wrote {tmp_path / 'kernels'} (14 files): 10 winners",
        # Tiles of 128 queries may not be used for 64; 128 lies as near to 64, whose tiles lose 10 %, as to 256.
        "attention_fwd, nearest tuned shape: expected loss 5.0% (median 5.0%, worst 10.0%), "
        "4 of 6 shapes left out in turn; 2 without an answer",
        "softmax, nearest tuned shape: expected loss 10.0% (median 10.0%, worst 10.0%), 4 of 4 shapes left out in turn",
        "import kernels; kernels.attention_fwd(...)",
    ]


def test_json_is_one_document_and_nothing_else(capsys, winners, tmp_path):
    code, out, _ = ran(capsys, "export", "-f", "fla", "-o", tmp_path / "fla", "--db", winners, "--json")
    result = json.loads(out)
    assert code == 0 and result["entries"] == 4 and len(result["left_out"]) == 6
    assert result["losses"][0]["mean"] == pytest.approx(0.15)
    assert [Path(p).name for p in result["files"]] == ["softmax_whole_row_kernel.json", "tuner.provenance.json"]
    _, out, _ = ran(capsys, "export", "--list", "--json")
    assert [f["name"] for f in json.loads(out)] == ["fla", "flaggems", "flex", "python", "triton", "vllm_moe"]


def test_what_is_left_out_is_said_beside_the_answer(capsys, winners, tmp_path):
    _, out, err = ran(capsys, "export", "-f", "fla", "-o", tmp_path / "fla", "--db", winners)
    assert "left out: " not in out
    assert err.count("left out: ") == 6 and "BLOCK_M, which an autotuner chooses after it" in err


def test_a_start_says_that_it_is_one(capsys, winners, tmp_path):
    code, out, _ = ran(capsys, "export", "-f", "flex", "-o", tmp_path / "flex.py", "--db", winners, "--seed")
    assert code == 0 and "a start, not a proven choice" in out


def test_check_exits_with_1_where_a_table_is_not_as_it_was(capsys, winners, package):
    assert ran(capsys, "export", "--check", "-o", package, "--db", winners)[0] == 0
    (package / "_rules.py").write_text("")
    code, out, err = ran(capsys, "export", "--check", "-o", package, "--db", winners)
    assert code == 1 and "export again with --replace" in out and err == ""
    code, out, _ = ran(capsys, "export", "--check", "-o", package, "--db", winners, "--json")
    assert code == 1 and json.loads(out)["ok"] is False and "_rules.py was changed or cut off" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-f", "python"], "error: --output is missing; name the file or folder of the table"),
        (["-o", "kernels"], "error: --format is missing; `tuner export --list` lists them"),
        (
            ["-f", "json", "-o", "k"],
            "error: there is no export format 'json'; known: fla, flaggems, flex, python, triton",
        ),
        (["-f", "flex", "-o", "f.py"], "error: torch 2.13 (flex_attention) runs a kernel of its own"),
        (
            ["-f", "fla", "-o", "f", "--set", "key"],
            "error: --set: cannot take 'key'; write NAME=VALUE, and each name once",
        ),
        (["-f", "fla", "-o", "f", "--since", "x"], "error: --since: cannot read 'x'; write a date such as 2026-11-30"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(capsys, winners, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = ran(capsys, "export", *words, "--db", winners)
    assert (code, out) == (2, "")
    assert err.startswith(said) and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_doctor_looks_at_a_consumer(capsys, monkeypatch):
    monkeypatch.delenv("FLA_CACHE_MODE", raising=False)
    code, out, _ = ran(capsys, "doctor", "--target", "fla", "--json")
    report = json.loads(out)
    assert {check["name"] for check in report["checks"]} >= {"fla-core", "FLA_CACHE_MODE", "FLA_CONFIG_DIR"}
    assert code == int(not report["ok"])
    code, out, _ = ran(capsys, "doctor", "--target", "python")
    assert code == 0 and "torch" in out and "triton" in out
