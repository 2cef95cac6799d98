"""Many browsers cost what one costs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from services.control.page.once import Once
from services.control.page.pane import Pane
from services.control.pulse import Pulse
from services.control.status import View
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


def test_what_many_ask_for_at_once_is_made_once_and_anew_when_it_is_old() -> None:
    now, make = [0.0], Maker()
    once: Once[int] = Once(1.0, lambda: now[0])

    async def ask(times: int) -> list[int]:
        return list(await asyncio.gather(*(once.get("it", make) for _ in range(times))))

    async def play() -> None:
        assert await ask(100) == [1] * 100
        now[0] = 0.9
        assert await ask(1) == [1]
        now[0] = 1.0
        assert await ask(3) == [2] * 3
        assert await once.get("something else", make) == 3

    asyncio.run(play())


def test_somebody_who_goes_away_does_not_take_it_from_the_others() -> None:
    release, make = threading.Event(), Maker()
    once: Once[int] = Once(1.0)

    def slow() -> int:
        release.wait(10)
        return make()

    async def play() -> None:
        first = asyncio.create_task(once.get("it", slow))
        second = asyncio.create_task(once.get("it", slow))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        release.set()
        assert await second == 1
        assert first.cancelled()

    asyncio.run(play())


def test_a_failure_is_told_to_all_and_is_not_for_ever() -> None:
    now = [0.0]
    once: Once[int] = Once(1.0, lambda: now[0])

    async def play() -> None:
        asked = [once.get("it", Maker(ValueError("no"))) for _ in range(2)]
        told = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(each) for each in told] == ["no", "no"]
        now[0] = 1.0
        assert await once.get("it", Maker()) == 1

    asyncio.run(play())


def test_nobody_waits_for_the_pane_that_somebody_else_makes() -> None:
    now, slow, looking, release = [0.0], [False], threading.Event(), threading.Event()

    def view() -> View:
        if slow[0]:
            looking.set()
            assert release.wait(10)
        return View(PIPELINE)

    pane = Pane(view, Pulse(view), lambda: now[0])
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
    pane = Pane(lambda: views[-1], Pulse(lambda: views[-1]), lambda: 0.0)
    if looked:
        pane.look()
    views.append(View("another"))
    pane.forget()
    assert pane.look().pipeline.name == "another"
