"""What is dear and shared: one cache of compiled kernels, and one machine with its processes, for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from tests.garbage import collect_less
from tests.postgres import NoServerError, PostgresServer
from tests.programs import import_path
from tuner.machine import Machine
from tuner.store.store import Store
from tuner.worker.pool import Pool
from tuner.workspace import Workspace

collect_less()


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ``TUNER_CACHE`` of the tests' own."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def machine(cache: Path) -> Iterator[Machine]:
    """The processes that work for sm_90 without a GPU. Their workers can import the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", import_path())
        with Machine(Workspace(cache), gpu=False, workers=2) as started:
            started.gpu.kill()
            yield started


@pytest.fixture(scope="session")
def compilers(machine: Machine) -> Pool[int]:
    return machine.compilers()


@pytest.fixture(scope="session")
def interpreters(machine: Machine) -> Pool[int]:
    return machine.interpreters()


class Standing:
    """``machine`` as ``tuner.api`` uses one, but with pools that are there already and go on afterwards."""

    def __init__(self, machine: Machine, compilers: Pool[int], interpreters: Pool[int]) -> None:
        self._machine = machine
        self._pools = compilers, interpreters

    def __enter__(self) -> Standing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in self._pools:
            pool.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def compilers(self) -> Pool[int]:
        return self._pools[0]

    def interpreters(self) -> Pool[int]:
        return self._pools[1]


@pytest.fixture
def standing_machine(
    machine: Machine, compilers: Pool[int], interpreters: Pool[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``tuner.tune`` and the others work with the session's machine: starting one of its own takes seconds."""
    standing = Standing(machine, compilers, interpreters)
    for module in ("tuner.api", "tuner.session"):
        monkeypatch.setattr(f"{module}.new_machine", lambda target, gpu, workers, gpus=None: standing)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of the session's own; what needs it is skipped where none can be had."""
    try:
        server = PostgresServer()
        with server:
            yield server
    except NoServerError as error:
        pytest.skip(f"no PostgreSQL: {error}")


@pytest.fixture(scope="session")
def postgres_template(postgres: PostgresServer) -> str:
    """The name of an empty database with the newest schema."""
    name = postgres.create()
    Store.open(postgres.url(name)).close()
    return name


@pytest.fixture
def postgres_url(postgres: PostgresServer, postgres_template: str) -> str:
    """The URL of an empty PostgreSQL database with the newest schema."""
    return postgres.url(postgres.create(postgres_template))


@pytest.fixture
def engine_spaces() -> Path:
    """The folder of the small search spaces for tests of the engine."""
    return Path(__file__).parent / "spaces_engine"


@pytest.fixture
def tune_environment(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in this process uses the shared cache and a database of the test's own."""
    monkeypatch.setenv("TUNER_CACHE", str(cache))
    monkeypatch.setenv("TUNER_DB", f"sqlite:///{tmp_path / 'tuner.db'}")
