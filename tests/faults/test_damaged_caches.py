"""Whatever happens to the files of the cache, results are those of an undamaged one."""

from __future__ import annotations

import importlib.util
import py_compile
import random
import shutil
import sys
from pathlib import Path

import pytest

from tests.engine_jobs import Counted, compile_job, office_for
from tests.faults.damage import DAMAGES, damage
from tuner.loading import load_source
from tuner.workspace import Workspace

SEED = random.SystemRandom().randrange(2**32)


@pytest.fixture
def chance() -> random.Random:
    print(f"seed {SEED}")  # shown where the test fails
    return random.Random(SEED)


@pytest.fixture
def job(machine, engine_spaces):
    return compile_job(office_for(machine, engine_spaces / "small.yaml"), "DIVIDE=true", machine)


def compiled(machine, job):
    """The report of a fresh process, which holds no kernel yet, and how many kernels it had to compile."""
    worker = machine.fresh_worker("damaged")
    try:
        return worker.run(Counted(job), 60).value
    finally:
        worker.kill()


def kernel_files(machine, job) -> list[Path]:
    """The cached files of the job's kernel: those of the folder whose code names it."""
    folders = {path.parent for path in machine.workspace.triton.rglob("*.ptx") if "small" in path.name}
    return sorted(path for folder in folders for path in folder.iterdir() if path.is_file())


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_kernel_is_compiled_again_to_the_same(how, machine, job, chance):
    whole, _ = compiled(machine, job)
    again, count = compiled(machine, job)
    assert (count, again.binary_hash) == (0, whole.binary_hash)
    files = [p for p in kernel_files(machine, job) if p.suffix in (".cubin", ".json", ".sha256")]
    assert len(files) >= 3
    for path in files:
        damage(path, how, chance)
    report, count = compiled(machine, job)
    assert (count, report.binary_hash) == (1, whole.binary_hash)
    assert compiled(machine, job)[1] == 0


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_rendered_source_is_written_again(how, machine, engine_spaces, chance):
    office = office_for(machine, engine_spaces / "small.yaml")
    config = office.bound.plain()[0]
    path = Path(office.candidate(config).source_path)
    whole = path.read_bytes()
    damage(path, how, chance)
    fresh = office_for(machine, engine_spaces / "small.yaml")
    assert Path(fresh.candidate(config).source_path).read_bytes() == whole


def test_bytecode_beside_a_source_is_neither_run_nor_written(tmp_path):
    source = tmp_path / "variant_00ff.py"
    source.write_text("def launch():\n    return 'source'\n")
    planted = tmp_path / "planted.py"
    planted.write_text("def launch():\n    return 'bytecode'\n")
    cached = Path(importlib.util.cache_from_source(str(source)))
    cached.parent.mkdir()
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(planted), cfile=str(cached), doraise=True, invalidation_mode=unchecked)
    try:
        assert load_source(source).launch() == "source"
    finally:
        sys.modules.pop("tuner_variant_variant_00ff", None)
    other = tmp_path / "variant_00fe.py"
    other.write_text("def launch():\n    return 1\n")
    load_source(other)
    del sys.modules["tuner_variant_variant_00fe"]
    assert not Path(importlib.util.cache_from_source(str(other))).exists()


def test_the_cache_may_be_deleted_between_two_uses(tmp_path):
    workspace = Workspace(tmp_path / "cache")
    shutil.rmtree(workspace.folder)
    again = Workspace(tmp_path / "cache")
    assert again.triton.is_dir()
