"""docs, "Run behind a reverse proxy", with a real nginx: its configuration works, a careless one opens nothing.

``apt-get install nginx-light`` brings nginx; each test runs one of its own, without rights, on a free port.
"""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.fast.control.examples import START
from tests.fast.control.live_server import served
from tests.fast.control.rig import ControlRig, D, entry
from tests.fast.waiting import eventually
from tests.servers.certificates import Authority
from tests.servers.ports import free_port

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
PAGE = Path(__file__).resolve().parents[4] / "docs/how-to/run-behind-a-reverse-proxy.md"
PUBLIC = "viaduck.example.com"

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not there: apt-get install nginx-light")

NAIVE = ["", "proxy_http_version 1.1; proxy_set_header Connection '';", "proxy_set_header Host $host;"]


def documented() -> str:
    found = re.search(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@contextmanager
def running(folder: Path, server: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off;\n{temporary}{server} }}\n"
    )
    process = subprocess.Popen([NGINX or "", "-p", str(folder), "-e", f"{folder}/error.log", "-c", str(file)])
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def up(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def documented_proxy(folder: Path, control: str, port: int) -> Iterator[httpx.Client]:
    """The page's own configuration, with the ports and certificates of this machine in place of its own."""
    authority = Authority.new(folder / "ca")
    pair = authority.server(folder / "server.pem")
    text = (
        documented().replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace("http://127.0.0.1:8000", control)
    )
    text = re.sub(r"/etc/ssl/\S+;", f"{pair};", text)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    with (
        running(folder / "nginx", text),
        httpx.Client(base_url=f"https://localhost:{port}", verify=trusting, headers={"Host": PUBLIC}) as client,
    ):
        eventually(lambda: up(client))
        yield client


def test_the_documented_configuration_serves_the_page_over_tls_and_needs_a_token(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path, public_url=f"https://{PUBLIC}")) as rig, served(rig) as control:
        _, token = rig.tokens.create("olga", "write", START)
        with documented_proxy(tmp_path / "proxy", control, free_port()) as client:
            assert client.get("/v1/pipelines").status_code == 401
            assert client.get("/metrics").status_code == 401
            bearer = {"Authorization": f"Bearer {token}"}
            assert client.put(f"{D}/a?check=false", json=entry("a"), headers=bearer).status_code == 201
            _in_a_browser(client, token)


def _in_a_browser(client: httpx.Client, token: str) -> None:
    ours = {"Origin": f"https://{PUBLIC}", "Sec-Fetch-Site": "same-origin"}
    login = client.post("/login", data={"token": token}, headers=ours)
    assert (login.status_code, login.headers["location"]) == (303, "/")
    cookie = login.headers["set-cookie"]
    assert cookie.startswith("__Host-viaduck_session=")
    assert "Secure" in cookie
    sent = {"Cookie": cookie.partition(";")[0]}
    client.cookies.clear()
    assert client.get("/", headers=sent).status_code == 200
    assert client.post("/destinations/a/pause", data={}, headers={**sent, **ours}).status_code == 303
    theirs = {**sent, "Origin": "https://evil.example"}
    assert client.post("/destinations/a/pause", data={}, headers=theirs).status_code == 403
    with client.stream("GET", "/events", headers=sent) as events:
        assert next(events.iter_lines()).startswith("event:")


CARELESS = [
    *(pytest.param(said, f"https://{PUBLIC}", id=f"public {said[:20]}") for said in NAIVE),
    *(pytest.param(said, None, id=f"nothing said {said[:20]}") for said in NAIVE if "1.1" not in said),
]
"""Nothing tells the requests of the one that is left out from local ones: the page says to set the address."""


@pytest.mark.parametrize(("said", "public_url"), CARELESS)
def test_behind_a_careless_proxy_nobody_is_an_admin(tmp_path: Path, said: str, public_url: str | None) -> None:
    port = free_port()
    with closing(ControlRig(tmp_path, public_url=public_url)) as rig, served(rig) as control:
        server = f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {control}; {said} }} }}"
        url, host = f"http://127.0.0.1:{port}", {"Host": PUBLIC}
        with running(tmp_path / "nginx", server), httpx.Client(base_url=url, headers=host) as client:
            eventually(lambda: up(client))
            assert client.put(f"{D}/a?check=false", json=entry("a")).status_code == 403
            assert client.get("/v1/pipelines").status_code == 403
            assert client.post("/v1/tokens", json={"name": "mallory", "scope": "admin"}).status_code == 403
            assert client.get("/metrics").status_code == 403
