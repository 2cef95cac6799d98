"""Many browsers cost what one costs."""

from __future__ import annotations

import threading

import pytest

from services.control.view.destination_status import View
from services.control.view.history import History
from services.control.web.page_snapshot import SnapshotCache
from services.control.web.ttl_cache import TtlCache
from tests.fast.control.examples import PIPELINE
from tests.fast.waiting import eventually


class Maker:
    """Counts how often something is made."""

    def __init__(self, error: Exception | None = None) -> None:
        self.made, self._error = 0, error

    def __call__(self) -> int:
        self.made += 1
        if self._error is not None:
            raise self._error
        return self.made


def test_what_many_ask_for_is_made_once_and_anew_when_it_is_old() -> None:
    now, make = [0.0], Maker()
    once: TtlCache[int] = TtlCache(1.0, lambda: now[0])
    assert [once.get("it", make) for _ in range(100)] == [1] * 100
    now[0] = 0.9
    assert once.get("it", make) == 1
    now[0] = 1.0
    assert [once.get("it", make) for _ in range(3)] == [2] * 3
    assert once.get("something else", make) == 3


def test_a_failure_is_not_kept() -> None:
    once: TtlCache[int] = TtlCache(1.0, lambda: 0.0)
    with pytest.raises(ValueError, match="no"):
        once.get("it", Maker(ValueError("no")))
    assert once.get("it", Maker()) == 1


def test_nobody_waits_for_the_pane_that_somebody_else_makes() -> None:
    now, slow, looking, release = [0.0], [False], threading.Event(), threading.Event()

    def view() -> View:
        if slow[0]:
            looking.set()
            assert release.wait(10)
        return View(PIPELINE)

    pane = SnapshotCache(view, History(view), lambda: now[0])
    before = pane.look()
    now[0], slow[0] = 2.0, True
    other = threading.Thread(target=pane.look)
    other.start()
    eventually(looking.is_set)
    assert pane.look() is before
    release.set()
    other.join(10)
    assert pane.look() is not before


@pytest.mark.parametrize("looked", [True, False])
def test_whoever_has_changed_something_sees_it(looked: bool) -> None:
    views = [View(PIPELINE)]
    pane = SnapshotCache(lambda: views[-1], History(lambda: views[-1]), lambda: 0.0)
    if looked:
        pane.look()
    views.append(View("another"))
    pane.forget()
    assert pane.look().pipeline.name == "another"
