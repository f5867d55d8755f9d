from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tuner
from tests.checkout import checkout
from tuner.shipped import migrations_dir, search_spaces_dir, variants_dir

CONTENT = ("variants", "search_spaces", "db")


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".db" not in path.name
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> set[str]:
    """The names in a wheel built from a copy of the checkout, in which databases lie about."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("tuner", *CONTENT):
        shutil.copytree(checkout() / name, copy / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(checkout() / name, copy / name)
    for stray in ("db/stray.db", "db/stray.db-wal", "variants/softmax/stray.db", "tuner/stray.db"):
        (copy / stray).write_text("private")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_the_package_and_the_content_and_nothing_else(wheel):
    expected = {f"tuner/{name}" for name in files(checkout() / "tuner")}
    for folder in CONTENT:
        expected |= {f"tuner/_shipped/{folder}/{name}" for name in files(checkout() / folder)}
    assert wheel == expected
    assert "tuner/_shipped/variants/softmax/online.py" in wheel


def test_no_database_is_in_the_wheel(wheel):
    assert [name for name in wheel if ".db" in name] == []


@pytest.mark.skipif(
    "TUNER_CHECKOUT" not in os.environ, reason="this is not the run against the wheel (make wheel-test)"
)
def test_the_suite_runs_against_the_wheel():
    package = Path(tuner.__file__).parent
    assert package.parent != checkout()
    assert [variants_dir(), search_spaces_dir(), migrations_dir()] == [package / "_shipped" / name for name in CONTENT]


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_python_m_tuner_works_from_the_root_of_the_repository():
    assert "tune" in run("-m", "tuner", "--help", cwd=checkout())


@pytest.mark.parametrize("module", ["tuner", "tuner.shipped", "tuner.template"])
def test_an_import_is_light(tmp_path, module):
    heavy = ("torch", "triton", "optuna", "sqlalchemy", "alembic", "numpy", "libcst", "pydantic")
    code = f"import sys; sys.path[:] = {sys.path!r}; import {module}; print([m for m in {heavy!r} if m in sys.modules])"
    assert run("-c", code, cwd=tmp_path) == "[]\n"
