"""Python runs this when it starts, where this folder is on its path: the processes of a fleet under torture.

It wraps the functions of the services at which a point lies. Whoever passes an armed point takes it (a rename, so only
one process can) and does its deed to the applier to which it belongs, itself last.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = "VIADUCK_TORTURE_POINTS"
LOOK_AT_CLOCK_S = 0.1
LONGEST_COMMIT_S = 0.012
"""A kill during COMMIT falls at a random moment of about as long as one takes."""


def _take(point: str, destination: str = "") -> None:
    """Die here, or freeze, if the point is armed; else go on. ``destination``: whose item passes, if that is told."""
    armed = Path(os.environ[FOLDER]) / point
    mine = armed.with_name(f"{point}.{os.getpid()}.{threading.get_ident()}")
    try:
        armed.rename(mine)
    except FileNotFoundError:
        return
    deed = mine.read_text()
    family = _family()
    mine.write_text(f"{family[0].pid} {destination}")
    mine.rename(armed.with_name(f"{point}.taken"))
    how = signal.SIGSTOP if deed == "freeze-all" else signal.SIGKILL
    if deed != "kill-one":
        for process in family:
            if process.pid != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, how)
    os.kill(os.getpid(), how)


def _family() -> list[Any]:
    """The applier's driver, then everything under it: its JVM, the JVM's workers, ourselves."""
    import psutil

    mine = [psutil.Process(), *psutil.Process().parents()]
    driver = next(process for process in reversed(mine) if "applier" in process.cmdline())
    return [driver, *driver.children(recursive=True)]


def _before(owner: Any, name: str, point: str, when: Callable[..., bool] = lambda *_, **__: True) -> None:
    wrapped = getattr(owner, name)

    def passing(*given: Any, **named: Any) -> Any:
        if when(*given, **named):
            _take(point)
        return wrapped(*given, **named)

    setattr(owner, name, passing)


def _after(owner: Any, name: str, point: str, whose: Callable[..., str] = lambda *_, **__: "") -> None:
    wrapped = getattr(owner, name)

    def passing(*given: Any, **named: Any) -> Any:
        result = wrapped(*given, **named)
        _take(point, whose(*given, **named))
        return result

    setattr(owner, name, passing)


def _soon_after(owner: Any, name: str, point: str) -> None:
    """The point is passed on a thread of its own, a moment after the function has returned."""
    wrapped = getattr(owner, name)

    def later() -> None:
        time.sleep(random.uniform(0, LONGEST_COMMIT_S))
        _take(point)

    def passing(*given: Any, **named: Any) -> Any:
        result = wrapped(*given, **named)
        if (Path(os.environ[FOLDER]) / point).exists():
            threading.Thread(target=later, daemon=True).start()
        return result

    setattr(owner, name, passing)


def _plant() -> None:
    from services.applier.apply import fence
    from services.applier.apply.transaction import Applier
    from services.applier.outbox import Outbox
    from services.applier.worker.task_run import Run
    from shared.kafka.work_consumer import WorkConsumer

    _after(Run, "_read", "after-read")
    _before(Applier, "_try", "before-transaction")
    for move in ("move_cursor", "replace_cursor", "create_cursor"):
        _after(fence, move, "after-fence")
    _after(fence, "stamp", "before-commit", lambda con, alias, stamp: str(stamp.item.destination))
    _soon_after(fence, "stamp", "during-commit")
    _after(Applier, "_try", "after-commit")
    _before(Outbox, "send", "before-progress")
    _before(WorkConsumer, "commit", "before-offset-commit", lambda _, offsets: bool(offsets))


def _follow_clock() -> None:
    """Move what this process takes for the time of day, whenever its service's file says so."""
    import psutil
    import time_machine

    family = [psutil.Process(), *psutil.Process().parents()]
    words = {word for process in family for word in process.cmdline()}
    service = next(name for name in ("applier", "reader", "control") if name in words)
    told = Path(os.environ[FOLDER]) / f"{service}.clock"
    offset, travel = "0", None
    while True:
        time.sleep(LOOK_AT_CLOCK_S)
        now = told.read_text() if told.exists() else "0"
        if now != offset:
            if travel is not None:
                travel.stop()
            travel = time_machine.travel(time.time() + int(now), tick=True)
            travel.start()
            offset = now


if FOLDER in os.environ:
    _plant()
    threading.Thread(target=_follow_clock, daemon=True).start()
