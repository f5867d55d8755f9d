"""Which winners are exported, how files are written and looked at later, and how a format is found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import ClassVar

import pytest

import tuner
from tests.exports.stored_winners import ESTIMATED, H100, H200, attention, passed, softmax, store_winner
from tuner.doctor import Check
from tuner.errors import StoreError, UsageError
from tuner.exports import formats
from tuner.exports.entry import Selection
from tuner.exports.formats import Table
from tuner.targets import target

ONE, TWO = "template=whole_row,num_warps=2", "template=whole_row,num_warps=4"


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "tuner.db")


def exported(path: Path, database: str, **more: object) -> tuner.ExportResult:
    return tuner.export("python", path, db=database, **more)  # type: ignore[arg-type]


# Which winners


def test_an_estimated_winner_is_exported_only_when_asked_for(tmp_path, database):
    device = target("sm_90")
    store_winner(database, softmax(8, 512), ONE, device=device, stack=ESTIMATED)
    with pytest.raises(
        UsageError, match=r"nothing can be exported: .*: it is estimated, not measured; take it with --est"
    ):
        exported(tmp_path / "kernels", database)
    result = exported(tmp_path / "kernels", database, estimated=True)
    assert (result.entries, result.estimated) == (1, 1)
    assert "by estimates that nothing has measured" in (tmp_path / "kernels" / "__init__.py").read_text()
    assert json.loads((tmp_path / "kernels" / "tuner.provenance.json").read_text())["estimated"] is True


def test_a_measured_winner_goes_before_an_estimated_one(tmp_path, database):
    store_winner(database, softmax(8, 512), ONE)
    store_winner(database, softmax(8, 512), TWO, stack=ESTIMATED)
    assert exported(tmp_path / "kernels", database, estimated=True).estimated == 0


def test_a_check_that_is_older_than_the_rules_is_refused_unless_told_to(tmp_path, database):
    problem = softmax(8, 512)
    store_winner(database, problem, ONE, check=passed(problem, without=["nonfinite", "tiny"]))
    with pytest.raises(
        UsageError, match=r"its check is older than the rules: it lacks .*tiny.*; tune it again, or take"
    ):
        exported(tmp_path / "kernels", database)
    assert exported(tmp_path / "kernels", database, old_checks=True).entries == 1


def test_winners_are_chosen_by_operator_device_and_date(tmp_path, database):
    store_winner(database, softmax(8, 512), ONE)
    store_winner(database, softmax(8, 512), ONE, device=H100)
    store_winner(database, attention(64), "template=pointer,BLOCK_M=64,BLOCK_N=32,num_warps=4")
    assert exported(tmp_path / "all", database).entries == 3
    assert exported(tmp_path / "softmax", database, operator="softmax").entries == 2
    assert exported(tmp_path / "h100", database, device="h100").entries == 1
    yesterday, tomorrow = (datetime.now(UTC) + timedelta(days=days) for days in (-1, 1))
    assert exported(tmp_path / "new", database, since=yesterday.date().isoformat()).entries == 3
    with pytest.raises(UsageError, match=r"no winner is stored since .*; run `tuner tune` first"):
        exported(tmp_path / "none", database, since=tomorrow)
    with pytest.raises(UsageError, match=r"--since: cannot read 'lately'; write a date such as 2026-11-30"):
        exported(tmp_path / "none", database, since="lately")
    with pytest.raises(
        UsageError, match=r"--device: no study is of 'B200'; the database has NVIDIA H100 80GB HBM3, NVIDIA"
    ):
        exported(tmp_path / "none", database, device="B200")
    with pytest.raises(UsageError, match="there is no operator 'sofmax'; did you mean softmax"):
        exported(tmp_path / "none", database, operator="sofmax")
    assert not (tmp_path / "none").exists()


def test_without_a_database_nothing_is_written(tmp_path):
    with pytest.raises(StoreError):
        exported(tmp_path / "kernels", str(tmp_path / "absent.db"))
    assert list(tmp_path.iterdir()) == []


# How they are written


def test_the_same_database_gives_the_same_bytes(winners, tmp_path):
    names = {"python": "kernels", "fla": "fla", "triton": "configs.py", "flaggems": "t.yaml", "flex": "flex.py"}
    for name, path in names.items():
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir(exist_ok=True)
            tuner.export(name, tmp_path / folder / path, db=str(winners), seed=True)
    one, two = ({p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in
                (tmp_path / "one", tmp_path / "two"))  # fmt: skip
    assert one == two and len(one) > 15


def test_the_provenance_says_where_every_line_comes_from(exported):
    data = json.loads((exported / "tuner.provenance.json").read_text())
    entry = next(e for e in data["entries"] if e["problem"]["operator"] == "softmax")
    assert entry["median_us"] > 0 and entry["check"]["families"][0] == "constant"
    assert data["devices"][entry["device"]]["name"] == "NVIDIA H200"
    assert data["stacks"][entry["stack"]]["driver"] == "580.159"
    assert (exported / entry["at"]).read_text().encode() and len(entry["variant"]) == 64
    assert {loss["rule"] for loss in data["losses"]} == {
        "softmax, nearest tuned shape", "attention_fwd, nearest tuned shape",
    }  # fmt: skip


def test_our_own_files_are_replaced_and_what_is_no_longer_used_is_removed(tmp_path, database):
    path = tmp_path / "kernels"
    store_winner(database, softmax(8, 512), "template=whole_row,num_warps=2,USE_EXP2=true")
    exported(path, database)
    before = set((path / "variants").glob("softmax_*.py"))
    store_winner(database, softmax(8, 512), "template=online,BLOCK_COLS=1024", us=lambda problem, config: 1.0)
    exported(path, database)
    after = set((path / "variants").glob("softmax_*.py"))
    assert len(before) == len(after) == 1 and before != after


def test_a_foreign_file_is_never_written_over(winners, tmp_path):
    path = tmp_path / "configs.py"
    path.write_text("mine\n")
    for replace in (False, True):
        with pytest.raises(UsageError, match=r"configs\.py was not written by `tuner export`, so it is not replaced"):
            tuner.export("triton", path, db=str(winners), replace=replace)
    assert path.read_text() == "mine\n"
    assert [p.name for p in tmp_path.iterdir()] == ["configs.py"]


def test_a_file_that_was_changed_since_is_replaced_only_when_told_to(winners, tmp_path):
    path = tmp_path / "configs.py"
    tuner.export("triton", path, db=str(winners))
    whole = path.read_text()
    path.write_text(whole + "# mine\n")
    with pytest.raises(
        UsageError, match=r"configs\.py was changed since it was exported; keep a copy and add --replace"
    ):
        tuner.export("triton", path, db=str(winners))
    tuner.export("triton", path, db=str(winners), replace=True)
    assert path.read_text() == whole


def test_a_write_that_fails_leaves_no_half_file(winners, tmp_path, monkeypatch):
    path = tmp_path / "configs.py"
    tuner.export("triton", path, db=str(winners), operator="softmax")
    whole = path.read_text()

    def full(self: Path, other: Path) -> Path:
        raise OSError(28, "No space left on device", str(other))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(
        UsageError, match=r"cannot write .*configs\.py: No space left on device; choose another --output"
    ):
        tuner.export("triton", path, db=str(winners), operator="softmax")
    assert path.read_text() == whole
    assert sorted(p.name for p in tmp_path.iterdir()) == ["configs.py", "configs.py.provenance.json"]


def test_a_file_where_a_folder_is_needed_is_refused(winners, tmp_path):
    (tmp_path / "kernels").write_text("")
    with pytest.raises(UsageError, match=r"--output: python writes a folder, but .* is none; choose another path"):
        tuner.export("python", tmp_path / "kernels", db=str(winners))


# How they are looked at later


def statuses(path: Path, database: str | None = None) -> dict[str, str]:
    report = tuner.check_export(path, db=database, winners=database is not None)
    return {check.name: f"{check.status}: {check.value}" for check in report.checks}


def test_a_whole_table_is_found_to_be_one(package, winners):
    assert tuner.check_export(package, db=str(winners)).ok
    assert statuses(package, str(winners)) == {
        "provenance": "ok: python, 10 entries, triton-variant-tuner " + tuner_version(),
        "files": "ok: 13 as written",
        "rules": "ok: as torch 2.4 or newer, Triton 3.0 or newer needs it",
        "triton": statuses(package)["triton"],
        "winners": "ok: every entry is still the stored winner",
    }


def tuner_version() -> str:
    from tuner.shipped import version

    return version()


def test_a_foreign_table_is_found(tmp_path, winners):
    (tmp_path / "configs.py").write_text("CONFIGS = {}\n")
    assert statuses(tmp_path / "configs.py") == {"provenance": "missing: configs.py.provenance.json is not there"}
    assert statuses(tmp_path / "absent.py")["table"].startswith("missing: ")


def test_a_changed_a_cut_off_and_a_missing_file_are_found(package):
    (package / "_tables.py").write_text((package / "_tables.py").read_text()[:500])
    assert statuses(package)["file"].endswith("_tables.py was changed or cut off")
    (package / "_tables.py").unlink()
    assert statuses(package)["file"].endswith("_tables.py is gone")
    sidecar = package / "tuner.provenance.json"
    sidecar.write_text(sidecar.read_text().replace('"median_us": ', '"median_us": 1'))
    assert statuses(package) == {"provenance": "missing: tuner.provenance.json is damaged"}


def test_a_table_of_another_triton_and_of_older_winners_is_stale(tmp_path, database):
    store_winner(database, softmax(8, 512), ONE)
    exported(tmp_path / "kernels", database)
    store_winner(database, softmax(8, 512), TWO, us=lambda problem, config: 1.0)
    assert statuses(tmp_path / "kernels", database)["winners"] == (
        "warning: 1 of 1 entries have another winner now, 0 have none"
    )
    sidecar = tmp_path / "kernels" / "tuner.provenance.json"
    data = json.loads(sidecar.read_text())
    from tuner.canonical import digest

    del data["digest"]
    for stack in data["stacks"].values():
        stack["triton"] = "3.6.0"
    sidecar.write_text(json.dumps({**data, "digest": digest(data, 64)}))
    report = tuner.check_export(tmp_path / "kernels", winners=False)
    (check,) = [check for check in report.checks if check.name == "triton"]
    assert report.ok and check.status == "warning"
    assert check.remedy == "tuned with Triton 3.6.0; what was the fastest may not be any more: tune again"


# How a format is found


class Names:
    """A format of another package: one line a winner."""

    name = "names"
    summary = "one line a winner"
    consumer = "nobody"
    single_file = True
    seed = False
    settings: ClassVar[Mapping[str, str]] = {}

    def table(self, selection: Selection, settings: Mapping[str, str], name: str) -> Table:
        lines = [f"{entry.winner.config.label}\n" for entry in selection.entries]
        return Table({"": "".join(lines)}, tuple((entry, str(i)) for i, entry in enumerate(selection.entries)))

    def validate(self, files: Mapping[str, str]) -> None:
        assert all(text.endswith("\n") for text in files.values())

    def examine(self) -> tuple[Check, ...]:
        return ()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {
        "names": metadata.EntryPoint("names", f"{__name__}:Names", formats.GROUP),
        "broken": metadata.EntryPoint("broken", "no_such_package:Format", formats.GROUP),
        "wrong": metadata.EntryPoint("wrong", "json:dumps", formats.GROUP),
    }
    load = metadata.EntryPoint.load
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda self: Names if self.name == "names" else load(self))
    monkeypatch.setattr(formats, "entry_points", lambda group: list(points.values()))


@pytest.mark.usefixtures("registered")
def test_another_package_can_add_a_format(winners, tmp_path):
    assert "names" in formats.names()
    result = tuner.export("names", tmp_path / "names.txt", db=str(winners))
    assert result.entries == 10 and (tmp_path / "names.txt").read_text().count("template=") == 10
    assert tuner.check_export(tmp_path / "names.txt", db=str(winners)).ok
    with pytest.raises(
        UsageError, match=r"export format 'broken' .* cannot be loaded: No module named 'no_such_package'"
    ):
        tuner.export("broken", tmp_path / "x", db=str(winners))
    with pytest.raises(UsageError, match=r"export format 'wrong' .* is no exporter; see docs/exports.md"):
        tuner.export("wrong", tmp_path / "x", db=str(winners))


def test_the_shipped_formats_are_listed_and_an_unknown_one_is_refused(tmp_path, winners):
    assert [f.name for f in tuner.export_formats()] == ["fla", "flaggems", "flex", "python", "triton", "vllm_moe"]
    assert all(f.summary and f.consumer for f in tuner.export_formats())
    with pytest.raises(UsageError, match=r"there is no export format 'pyton' \(did you mean `python`\?\); known: fla"):
        tuner.export("pyton", tmp_path / "x", db=str(winners))


# In memory


def test_a_lookup_gives_the_winner_of_every_tuned_problem_and_of_no_other(winners):
    table = tuner.lookup("softmax", db=str(winners))
    assert (table.device, len(table), table.axes) == (H200.name, 4, ("rows", "cols", "row_stride"))
    winner = table.best("fp16", (64, 512, 512))
    assert winner is not None and winner.config == tuner.best(softmax(64, 512), db=str(winners)).config
    assert table.of(softmax(64, 512)) is winner
    assert table.best("fp16", (64, 513, 513)) is None and table.best("bf16", (64, 512, 512)) is None
    causal = tuner.lookup("attention_fwd", db=str(winners))
    assert causal.best("fp16", (1, 2, 2, 128, 128, 64), (True, False, None)).problem.settings["causal"] is True
    assert causal.best("fp16", (1, 2, 2, 128, 128, 64)).problem.settings["causal"] is False


def test_a_lookup_is_of_one_device_and_holds_estimates_only_when_asked_for(database):
    store_winner(database, softmax(8, 512), ONE)
    store_winner(database, softmax(8, 1024), ONE, device=H100, stack=ESTIMATED)
    assert tuner.lookup("softmax", db=database).device == H200.name
    with pytest.raises(
        UsageError, match="softmax has winners on several devices: NVIDIA H100 80GB HBM3, NVIDIA H200; say"
    ):
        tuner.lookup("softmax", db=database, estimated=True)
    assert len(tuner.lookup("softmax", db=database, estimated=True, device="h100")) == 1
