"""What the doctor says about this machine and about broken ones. It never raises."""

import json
from pathlib import Path

import pytest

from tuner import doctor as module
from tuner import nvml, probe, toolchain
from tuner.doctor import Check, DoctorReport, Status, doctor
from tuner.errors import MissingError
from tuner.filesystem import existing_parent, filesystem, folder_bytes
from tuner.store.location import without_password
from tuner.targets import target

MOUNTS = """\
/dev/root / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
tmpfs /home/me/scratch\\040space tmpfs rw 0 0
"""


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(probe, "current_device", lambda: None)
    monkeypatch.setattr(nvml, "driver_version", lambda: "")


@pytest.fixture
def no_processes(monkeypatch):
    """Answers for the subprocesses, so that only one test pays for them."""
    monkeypatch.setattr(module, "_run_python", lambda arguments, environment: (0, "False\n"))


def rows(report):
    return {check.name: check for check in report.checks}


def test_a_machine_without_a_gpu_is_fit_for_estimates(no_gpu, tmp_path):
    report = doctor(f"sqlite:///{tmp_path}/x.db", "h200", tmp_path / "cache")
    found = rows(report)
    assert report.ok
    assert found["gpu"].status is Status.WARNING
    assert "results are estimates" in found["gpu"].remedy
    assert found["triton"].value == toolchain.triton_version()
    assert found["compiler"].value.startswith("ptxas ")
    assert found["compiles for NVIDIA H200"] == Check("compiles for NVIDIA H200", Status.OK, "ptx cubin")
    assert found["exp2"].value == "tl.exp2"
    assert found["cache"].value == f"{tmp_path}/cache (made on first use)"
    assert found["database"].value == f"{tmp_path}/x.db (made on first use)"
    assert not list(tmp_path.iterdir())


def test_the_compiler_is_tried_for_the_gpu_that_is_there(monkeypatch, no_processes, tmp_path):
    monkeypatch.setattr(probe, "current_device", lambda: target("a100"))
    monkeypatch.setattr(nvml, "driver_version", lambda: "580.1")
    found = rows(doctor(f"sqlite:///{tmp_path}/x.db", "h200", tmp_path))
    assert found["gpu"].value == "NVIDIA A100-SXM4-80GB (80, 108 SMs, 80 GiB)"
    assert found["driver"].value == "580.1"
    assert "compiles for NVIDIA A100-SXM4-80GB" in found


def test_a_gpu_that_torch_cannot_start_is_a_row(monkeypatch, no_processes, tmp_path):
    def fail():
        raise RuntimeError("CUDA driver version is insufficient\nmore")

    monkeypatch.setattr(probe, "current_device", fail)
    found = rows(doctor(f"sqlite:///{tmp_path}/x.db", "h200", tmp_path))
    assert found["gpu"].value == "torch cannot use the GPU: CUDA driver version is insufficient"


def test_without_triton_the_rest_is_still_looked_at(monkeypatch, no_gpu, tmp_path):
    def missing():
        raise MissingError("Triton is not installed; install it with `pip install triton`")

    monkeypatch.setattr(toolchain, "triton_version", missing)
    report = doctor(f"sqlite:///{tmp_path}/x.db", "h200", tmp_path)
    found = rows(report)
    assert not report.ok
    assert found["triton"].remedy == "Triton is not installed; install it with `pip install triton`"
    assert "compiler" not in found
    assert found["database"].status is Status.OK


def test_an_unknown_target_is_a_row(no_gpu, no_processes, tmp_path):
    found = rows(doctor(f"sqlite:///{tmp_path}/x.db", "h2000", tmp_path))
    assert found["target"].status is Status.MISSING
    assert "did you mean" in found["target"].remedy


def test_a_compiler_that_fails_is_shown_with_its_last_line(monkeypatch, no_gpu, tmp_path):
    monkeypatch.setattr(module, "_run_python", lambda arguments, environment: (1, "Traceback\nValueError: no sm_75\n"))
    found = rows(doctor(f"sqlite:///{tmp_path}/x.db", "t4", tmp_path))
    assert found["compiles for Tesla T4"].status is Status.MISSING
    assert found["compiles for Tesla T4"].value == "ValueError: no sm_75"
    assert found["interpreter"].status is Status.WARNING


@pytest.mark.parametrize(
    ("answer", "value"),
    [("False", "bf16 products are right"), ("True", "bf16 products are wrong in this Triton; repaired when checking")],
)
def test_the_interpreter_says_how_it_multiplies_bf16(monkeypatch, answer, value):
    monkeypatch.setattr(module, "_run_python", lambda arguments, environment: (0, f"a warning\n{answer}\n"))
    assert module._interpreter() == Check("interpreter", Status.OK, value)


def test_a_ptxas_that_does_not_run_is_a_row(monkeypatch):
    def broken(backend, arch):
        raise MissingError("/x/ptxas does not run (Exec format error); reinstall triton")

    monkeypatch.setattr(toolchain, "compiler_version", broken)
    assert module._compiler(target("h200")) == Check(
        "compiler",
        Status.MISSING,
        "ptxas not found or not running",
        "/x/ptxas does not run (Exec format error); reinstall triton",
    )


def test_a_cache_that_cannot_be_written_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(module.os, "access", lambda path, mode: False)
    check = module._cache(tmp_path / "cache")
    assert (check.status, check.value) == (Status.MISSING, f"{tmp_path}/cache is not writable")


def test_a_cache_on_a_network_disk_is_a_warning(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "filesystem", lambda path: "nfs4")
    check = module._cache(tmp_path)
    assert check.status is Status.WARNING
    assert check.value == f"{tmp_path} (0.0 MB) on nfs4"


def test_a_file_that_is_no_database_is_missing_and_untouched(tmp_path):
    path = tmp_path / "x.db"
    path.write_text("hello")
    check = module._database(f"sqlite:///{path}")
    assert check.status is Status.MISSING
    assert "not a SQLite database" in check.remedy
    assert path.read_text() == "hello"


def test_the_password_of_a_database_is_never_shown(tmp_path):
    check = module._database("postgresql+psycopg://me:secret@host/name")
    assert "secret" not in check.value + check.remedy
    assert without_password("mysql://me:secret@host/x") == "mysql://me:***@host/x"
    assert without_password("sqlite:////tmp/x.db") == "sqlite:////tmp/x.db"


def test_a_report_is_plain_data():
    report = DoctorReport((Check("gpu", Status.WARNING, "none", "buy one"),))
    assert json.loads(json.dumps(report.as_json())) == {
        "ok": True,
        "checks": [{"name": "gpu", "status": "warning", "value": "none", "remedy": "buy one"}],
    }


def test_every_row_that_is_not_ok_has_a_remedy(no_gpu, no_processes, tmp_path):
    report = doctor("nonsense", "h200", tmp_path)
    assert all(check.remedy for check in report.checks if check.status is not Status.OK)
    assert rows(report)["database"].status is Status.MISSING


@pytest.mark.parametrize(
    ("path", "kind"), [("/opt/x", "ext4"), ("/home/me/x", "nfs4"), ("/home/me/scratch space/x", "tmpfs")]
)
def test_the_innermost_mount_decides_the_file_system(path, kind):
    assert filesystem(Path(path), MOUNTS) == kind


def test_the_nearest_existing_folder_is_found(tmp_path):
    assert existing_parent(tmp_path / "a" / "b" / "c.db") == tmp_path


def test_a_folder_is_as_large_as_its_files(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"12345")
    (tmp_path / "y").write_bytes(b"123")
    assert folder_bytes(tmp_path) == 8
