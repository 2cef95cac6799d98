"""What a deployment under test stands on: files in a folder by default, else real servers."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from tests.servers.kafka import Kafka
from tests.servers.kafka_security import Security
from tests.servers.postgres import Postgres
from tests.servers.s3 import S3
from tests.signed import KEY, SECTION, VARIABLE
from tests.world.duck import quote
from tests.world.lake import Lake

SOURCE, REGISTRY = "source", "registry"
S3_SECRETS = {"s3_access_key_id": "S3_KEY_ID", "s3_secret_access_key": "S3_SECRET"}


class Parts:
    """Lakes by name, and the sections of the file that name servers. Every secret travels in ``environ``.

    ``properties`` of a single lake (its store's keys, a proxy's port) may be changed; then declare the file again.
    ``ports`` are those of proxies in front of a lake's Postgres, or the registry's, by its name.
    """

    def __init__(
        self,
        *,
        kafka: Kafka | None = None,
        postgres: Postgres | None = None,
        s3: S3 | None = None,
        sections: Mapping[str, Any] | None = None,
        ports: Mapping[str, int] | None = None,
    ) -> None:
        self.environ: dict[str, str] = {}
        self.properties: dict[str, dict[str, str]] = {}
        self.ports: dict[str, int] = dict(ports or {})
        self.sections: dict[str, Any] = dict(sections or {})
        self._postgres, self._s3 = postgres, s3
        self._run = f"e2e_{secrets.token_hex(4)}_404"  # addresses, too, say now and then that nothing is found
        if kafka is not None:
            self.sections["kafka"] = {**self._broker(kafka), "topic_prefix": f"viaduck-{self._run}"}
        if postgres is not None:
            registry = self.database(REGISTRY)
            postgres.create_database(registry)
            self.environ["REGISTRY_URL"] = postgres.uri(registry, port=self.ports.get(REGISTRY))
            self.sections["registry"] = {"url_env": "REGISTRY_URL"}
        if s3 is not None:
            s3.create_bucket(self.bucket)
            named = s3.properties(s3.admin)
            self.environ |= {variable: named[name] for name, variable in S3_SECRETS.items()}

    @property
    def bucket(self) -> str:
        return self._run.replace("_", "-")

    def lake(self, folder: Path, name: str) -> Lake:
        """A new, empty place for a lake, as the world reaches it: never through a proxy."""
        if self._postgres is None:
            return Lake.in_folder(folder / name)
        database = self.database(name)
        self._postgres.create_database(database)
        data = str(folder / name / "data") if self._s3 is None else f"s3://{self.bucket}/{name}/"
        return Lake(f"postgres:{self._postgres.dsn(database)}", data)

    def entry(self, name: str, lake: Lake) -> dict[str, Any]:
        """The lake's keys in the file."""
        where: dict[str, Any] = {"catalog": lake.catalog, "data_path": lake.data_path}
        if self._postgres is not None:
            variable = re.sub(r"\W", "_", name).upper() + "_URI"
            self.environ[variable] = self._postgres.uri(self.database(name), port=self.ports.get(name))
            where = {"postgres_uri_env": variable, "data_path": lake.data_path}
        properties = self._store() | self.properties.get(name, {})
        return where | ({"properties": properties} if properties else {})

    def prepare(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let the world reach the store."""
        if self._s3 is None:
            return
        told = self._s3.properties(self._s3.admin)
        con.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID {quote(told['s3_access_key_id'])},"
            f" SECRET {quote(told['s3_secret_access_key'])}, ENDPOINT {quote(told['s3_endpoint'])},"
            f" REGION {quote(told['s3_region'])}, USE_SSL false, URL_STYLE 'path')"
        )

    @property
    def secrets(self) -> list[str]:
        """What no log may show."""
        uris = (re.search(r"//[^:]+:([^@]+)@", value) for value in self.environ.values())
        plain = [value for name, value in self.environ.items() if not name.endswith(("_URI", "_URL"))]
        return [uri[1] for uri in uris if uri is not None] + plain

    def database(self, name: str) -> str:
        return f"{self._run}_{name}"

    def _store(self) -> dict[str, str]:
        if self._s3 is None:
            return {}
        told = self._s3.properties(self._s3.admin)
        plain = {name: value for name, value in told.items() if name not in S3_SECRETS}
        return plain | {f"{name}_env": variable for name, variable in S3_SECRETS.items()}

    def _broker(self, kafka: Kafka) -> dict[str, Any]:
        self.environ[VARIABLE] = KEY
        section = {
            "bootstrap_servers": kafka.bootstrap,
            "partitions": 4,
            "replication_factor": len(kafka.nodes),
            **SECTION,
        }
        if kafka.security is None:
            return section
        return section | {"properties": self._login(kafka.security)}

    def _login(self, security: Security) -> dict[str, str]:
        told = security.client(security.user)
        self.environ["KAFKA_PASSWORD"] = told.pop("sasl.password")
        return {**told, "sasl.password_env": "KAFKA_PASSWORD"}
