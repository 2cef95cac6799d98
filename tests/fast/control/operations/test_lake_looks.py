"""Lakes that do not answer hold some of control's threads, and never all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from services.control.operations.preflight import MOST_LOOKS, looking
from tests.fast.control.rig import ControlRig, D, entry


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(ControlRig(tmp_path)) as rig:
        rig.add("a")
        yield rig


LOOKS = [
    ("PUT", f"{D}/b", entry("b")),
    ("POST", f"{D}:validate", entry("b", id="b")),
    ("GET", f"{D}/a/history", None),
    ("GET", f"{D}/a/at?position=1", None),
    ("GET", f"{D}/a/schema", None),
]


@pytest.mark.parametrize(("method", "path", "body"), LOOKS, ids=[each[1].rpartition("/")[2] for each in LOOKS])
def test_while_many_wait_for_lakes_no_other_look_waits_and_the_rest_goes_on(
    rig: ControlRig, method: str, path: str, body: object
) -> None:
    with ExitStack() as waiting:
        for _ in range(MOST_LOOKS):
            waiting.enter_context(looking())
        answer = rig.http.request(method, path, json=body)
        assert answer.status_code == 503, answer.text
        assert answer.headers["Retry-After"]
        assert "lakes" in answer.json()["detail"]
        assert rig.http.post(f"{D}/a:pause").status_code == 200
    assert "requests wait for lakes" not in rig.http.request(method, path, json=body).text
