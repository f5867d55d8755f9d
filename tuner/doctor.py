"""What this machine has and lacks, as rows with a remedy. Nothing here raises: what is missing is a row."""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from tuner import nvml, probe, toolchain
from tuner.device import Device
from tuner.errors import MissingError, TunerError
from tuner.filesystem import NETWORK_FILESYSTEMS, existing_parent, filesystem, folder_bytes
from tuner.private_folder import refuse_shared
from tuner.store.location import without_password
from tuner.targets import target as known_target

OLDEST_PYTHON = (3, 11)
SUBPROCESS_SECONDS = 120
DATABASE_SECONDS = 2.0
"""How long to wait for a locked database before saying so."""


class Status(StrEnum):
    """``warning``: works, with less (no GPU: estimates only). ``missing``: the main job cannot be done."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True)
class Check:
    """One row. ``value`` is what was found, ``remedy`` what to do (empty where all is well)."""

    name: str
    status: Status
    value: str
    remedy: str = ""


@dataclass(frozen=True)
class DoctorReport:
    """All rows, in the order in which a user would put things right."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is missing (warnings are allowed)."""
        return all(check.status is not Status.MISSING for check in self.checks)

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks]}


def doctor(db_url: str, target: str = "sm_90", cache_dir: Path | None = None) -> DoctorReport:
    """Look at this machine. ``target`` is what to try the compiler for where there is no GPU.

    ``cache_dir`` is the compile cache (Triton's own place by default). Takes a few seconds: it compiles and starts the
    interpreter in processes of their own.
    """
    checks = [_python(), _cores(), _torch(), _triton()]
    device = _device(checks)
    if checks[3].status is Status.OK:
        try:
            device = device or known_target(target)
        except TunerError as error:
            checks.append(Check("target", Status.MISSING, target, str(error)))
        if device is not None:
            checks += [_compiler(device), _exp2(), _compiles(device), _interpreter()]
    checks += [_cache(cache_dir or _triton_cache()), _database(db_url)]
    return DoctorReport(tuple(checks))


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Check("python", Status.MISSING, version, "use Python 3.11 or newer")
    return Check("python", Status.OK, version)


def _cores() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if cores < 2:
        remedy = "compiling takes the core that measures; give this process two or more"
        return Check("cpu cores", Status.WARNING, str(cores), remedy)
    return Check("cpu cores", Status.OK, str(cores))


def _torch() -> Check:
    return _found("torch", toolchain.torch_version)


def _triton() -> Check:
    return _found("triton", toolchain.triton_version)


def _found(name: str, version: Callable[[], str]) -> Check:
    try:
        return Check(name, Status.OK, version())
    except TunerError as error:
        return Check(name, Status.MISSING, "not installed", str(error))


def _device(checks: list[Check]) -> Device | None:
    """Adds the rows for GPU and driver; returns the GPU, if any."""
    try:
        device = probe.current_device()
        problem = "no GPU that torch can use"
    except (OSError, RuntimeError, AssertionError) as error:
        device, problem = None, f"torch cannot use the GPU: {_first_line(str(error))}"
    driver = nvml.driver_version()
    if device is None:
        remedy = (
            "without one, results are estimates for --target; for a GPU install its driver and a torch built for it"
        )
        checks.append(Check("gpu", Status.WARNING, problem, remedy))
    else:
        gib = device.memory_bytes / (1 << 30)
        value = f"{device.name} ({device.arch}, {device.sms} SMs, {gib:.0f} GiB)"
        checks.append(Check("gpu", Status.OK, value))
    if driver:
        checks.append(Check("driver", Status.OK, driver))
    elif device is not None and device.backend == "hip":
        checks.append(Check("driver", Status.OK, "ROCm (no NVML)"))
    else:
        remedy = "install the NVIDIA driver and `pip install nvidia-ml-py`; without NVML no clocks are recorded"
        checks.append(Check("driver", Status.WARNING, "NVML not found", remedy))
    return device


def _compiler(device: Device) -> Check:
    try:
        version = toolchain.compiler_version(device.backend, device.arch)
        path = ""
        if isinstance(device.arch, int):
            path = f" ({toolchain.ptxas_path(device.arch)})"
        return Check("compiler", Status.OK, version + path)
    except TunerError as error:
        return Check("compiler", Status.MISSING, "ptxas not found or not running", str(error))


def _exp2() -> Check:
    try:
        spelling = importlib.import_module("tuner.exp2").exp2_spelling(toolchain.triton_version())
        return Check("exp2", Status.OK, str(spelling))
    except ImportError as error:
        return Check("exp2", Status.WARNING, f"unknown ({error})", "reinstall this package")
    except TunerError as error:
        return Check("exp2", Status.MISSING, "none", str(error))


def _compiles(device: Device) -> Check:
    name = f"compiles for {device.name}"
    with tempfile.TemporaryDirectory(prefix="tuner-doctor-") as folder:
        words = [device.backend, str(device.arch), str(device.warp_size)]
        code, output = _run_python(["-m", "tuner.smoke_compile", *words], {"TRITON_CACHE_DIR": folder})
    if code == 0:
        return Check(name, Status.OK, _last_line(output))
    return Check(name, Status.MISSING, _last_line(output), "reinstall triton, or choose a target that it supports")


def _interpreter() -> Check:
    program = "from tuner.interpreter import bf16_dot_is_wrong; print(bf16_dot_is_wrong())"
    code, output = _run_python(["-c", program], {"TRITON_INTERPRET": "1"})
    answer = _last_line(output)
    if code == 0 and answer == "False":
        return Check("interpreter", Status.OK, "bf16 products are right")
    if code == 0 and answer == "True":
        return Check("interpreter", Status.OK, "bf16 products are wrong in this Triton; repaired when checking")
    remedy = "checks without a GPU need Triton's interpreter; reinstall triton and numpy"
    return Check("interpreter", Status.WARNING, answer or "does not start", remedy)


def _cache(folder: Path) -> Check:
    base = existing_parent(folder)
    if not os.access(base, os.W_OK):
        remedy = "set TRITON_CACHE_DIR to a folder that you may write"
        return Check("cache", Status.MISSING, f"{folder} is not writable", remedy)
    if folder.is_dir():
        try:
            refuse_shared(folder)
        except MissingError as error:
            return Check("cache", Status.MISSING, str(folder), str(error))
    value = f"{folder} ({folder_bytes(folder) / 1e6:.1f} MB)" if folder.is_dir() else f"{folder} (made on first use)"
    kind = filesystem(base)
    if kind in NETWORK_FILESYSTEMS:
        remedy = "set TRITON_CACHE_DIR to a folder on a local disk; races on network file systems fail compilations"
        return Check("cache", Status.WARNING, f"{value} on {kind}", remedy)
    return Check("cache", Status.OK, value)


def _database(url: str) -> Check:
    try:
        location = importlib.import_module("tuner.store.engine").locate(url)
    except ImportError as error:
        return Check("database", Status.WARNING, f"not looked at ({error})", "install the missing package")
    except TunerError as error:
        return Check("database", Status.MISSING, without_password(url), str(error))
    label, path = str(location.label), location.path
    if path is None:
        return _opened(url, label)
    base = existing_parent(path.parent)
    if not os.access(path if path.exists() else base, os.W_OK) or not os.access(base, os.W_OK):
        return Check("database", Status.MISSING, f"{label} is not writable", "choose another with --db or TUNER_DB")
    check = _opened(url, label, path) if path.exists() else Check("database", Status.OK, f"{label} (made on first use)")
    if check.status is Status.OK and filesystem(base) in NETWORK_FILESYSTEMS:
        remedy = "SQLite's locks do not hold on network file systems; put it on a local disk, or use a server"
        return Check("database", Status.WARNING, f"{check.value} on {filesystem(base)}", remedy)
    return check


def _opened(url: str, label: str, path: Path | None = None) -> Check:
    """Opens the database without changing it."""
    try:
        schema = importlib.import_module("tuner.store.migrating")
        if path is not None:
            inspection = importlib.import_module("tuner.store.inspection")
            revision = inspection.sqlite_revision(path, label, DATABASE_SECONDS)
            if revision is None:
                return Check("database", Status.OK, f"{label} (holds no results yet)")
            if revision != schema.HEAD and revision in schema.known_revisions():
                remedy = (
                    "it is upgraded by the next command that writes; keep a copy if an older version still reads it"
                )
                return Check("database", Status.WARNING, f"{label} (schema {revision}, now {schema.HEAD})", remedy)
        store = importlib.import_module("tuner.store.store").Store
        with store.open(url, create=False, write=False, busy_timeout_s=DATABASE_SECONDS):
            return Check("database", Status.OK, f"{label} (schema {schema.HEAD})")
    except ImportError as error:
        return Check("database", Status.WARNING, f"{label}: not opened ({error})", "install the missing package")
    except TunerError as error:
        return Check("database", Status.MISSING, label, str(error))


def _triton_cache() -> Path:
    named = os.environ.get("TRITON_CACHE_DIR")
    return Path(named) if named else Path.home() / ".triton" / "cache"


def _run_python(arguments: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a fresh interpreter that finds this package."""
    package_root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(p for p in (package_root, os.environ.get("PYTHONPATH", "")) if p)
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=SUBPROCESS_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {SUBPROCESS_SECONDS} s"
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""
