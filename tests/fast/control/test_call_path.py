"""How far it is from the route of a change to the registry and back, in modules and in returns between them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from services.control.api import writes
from tests.fast.control.rig import ControlRig, D, entry

ROOT = Path(__file__).parents[3]
ROOMS = (f"{ROOT}/services/", f"{ROOT}/shared/")


class CallPath:
    """The modules of services and shared libraries that one function runs through, and the returns between them."""

    def __init__(self, route: Callable[..., Any]) -> None:
        self._route = route.__code__
        self._open: list[str] = []
        self.modules: set[str] = set()
        self.returns = 0

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(ROOMS):
            return
        if event == "call" and (self._open or code is self._route):
            self._open.append(code.co_filename)
            self.modules.add(code.co_filename)
        elif event == "return" and self._open:
            returned = self._open.pop()
            self.returns += bool(self._open) and self._open[-1] != returned


@contextmanager
def followed(path: CallPath) -> Iterator[None]:
    before = sys.getprofile()
    threading.setprofile(path.profile)
    try:
        yield
    finally:
        threading.setprofile(before)


@pytest.mark.parametrize(("query", "modules", "returns"), [("?check=false", 28, 91), ("", 39, 139)])
def test_a_put_of_a_destination_goes_a_short_way(tmp_path: Path, query: str, modules: int, returns: int) -> None:
    rig, path = ControlRig(tmp_path), CallPath(writes.put_destination)
    with followed(path):
        answer = rig.http.put(f"{D}/one{query}", entry("one"))
    rig.close()
    assert answer.status_code == 201
    assert len(path.modules) <= modules, sorted(path.modules)
    assert path.returns <= returns
