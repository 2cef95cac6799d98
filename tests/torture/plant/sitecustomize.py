"""Python runs this when it starts, where this folder is on its path: the processes of a fleet under torture.

It wraps the functions of the services at which a point lies. Whoever passes an armed point takes it (a rename, so only
one process can) and does its deed to the applier to which it belongs, itself last.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

FOLDER = "VIADUCK_TORTURE_POINTS"
LOOK_AT_CLOCK_S = 0.1
DIRECT_COMMIT_S, EXTENSIONS_COMMIT_S = 0.004, 0.012
"""A kill during COMMIT falls at a random moment of about as long as one takes, by who commits."""


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
    driver = next(process for process in reversed(mine) if "applier" in _words(process))
    return [driver, *driver.children(recursive=True)]


def _words(process: Any) -> list[str]:
    """A forked process has its command line as one text."""
    return " ".join(process.cmdline()).split()


Passing = Callable[..., object]
"""Is called with the arguments of the function at which a point lies."""


def _wrap(owner: Any, name: str, before: Passing | None = None, after: Passing | None = None) -> None:
    """``after`` is left out where the function raises."""
    wrapped = getattr(owner, name)

    def passing(*given: Any, **named: Any) -> Any:
        if before is not None:
            before(*given, **named)
        result = wrapped(*given, **named)
        if after is not None:
            after(*given, **named)
        return result

    setattr(owner, name, passing)


def _at(point: str) -> Passing:
    return lambda *_, **__: _take(point)


def _at_commit(destination: str, within_s: float) -> None:
    """Before COMMIT; and during it, on a thread of its own, some time within what it takes."""
    _take("before-commit", destination)

    def later() -> None:
        time.sleep(random.uniform(0, within_s))
        _take("during-commit")

    if (Path(os.environ[FOLDER]) / "during-commit").exists():
        threading.Thread(target=later, daemon=True).start()


def _at_rest(_: Any, text: str, __: Any) -> None:
    """Of a batch, whose claim is sent already."""
    if text.startswith("WITH checked"):
        _take("within-batch")


def _at_offsets(_: Any, offsets: Any) -> None:
    if offsets:
        _take("before-offset-commit")


def _in_readers(module: Any, reader: str) -> None:
    _wrap(getattr(module, reader), "read", after=_at("after-read"))


def _in_appliers(module: Any, applier: str) -> None:
    _wrap(getattr(module, applier), "_try", before=_at("before-transaction"), after=_at("after-commit"))


def _in_direct_commits(module: Any) -> None:
    _in_appliers(module, "DirectApplier")
    _wrap(
        module.DirectApplier,
        "_send",
        before=lambda _, lake, change, *__: _at_commit(str(change.target.item.destination), DIRECT_COMMIT_S),
    )


def _in_fence(module: Any) -> None:
    for move in ("move_cursor", "replace_cursor", "create_cursor"):
        _wrap(module, move, after=_at("after-fence"))
    _wrap(
        module,
        "stamp",
        after=lambda con, alias, stamp: _at_commit(str(stamp.item.destination), EXTENSIONS_COMMIT_S),
    )


PLANTS: dict[str, Callable[[Any], None]] = {
    "services.applier.worker.source_reader": lambda module: _in_readers(module, "LakeReader"),
    "services.applier.worker.topic_reader": lambda module: _in_readers(module, "TopicReader"),
    "services.applier.apply.direct.commit": _in_direct_commits,
    "services.applier.apply.transaction": lambda module: _in_appliers(module, "DestinationApplier"),
    "services.applier.apply.direct.look": lambda module: _wrap(module, "look_at", after=_at("after-fence")),
    "services.applier.apply.cursor.fence": _in_fence,
    "shared.lake.direct.catalogs": lambda module: _wrap(module, "_say", before=_at_rest),
    "services.applier.outbox": lambda module: _wrap(module.Outbox, "send", before=_at("before-progress")),
    "shared.kafka.work_consumer": lambda module: _wrap(module.WorkConsumer, "commit", before=_at_offsets),
}
"""What is done to a module. Its functions are called by whoever imports the module, not by other names of theirs."""


class _Planter(MetaPathFinder):
    """Does it as soon as a module is imported. A process that needs none of them does not import them for it, which
    would be more than a second of CPU at each start."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        plant = PLANTS.get(name)
        spec = PathFinder.find_spec(name, path, target) if plant is not None else None
        if spec is None or spec.loader is None or plant is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            plant(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _follow_clock(psutil: Any, time_machine: Any) -> None:
    """Move what this process takes for the time of day, whenever its service's file says so."""
    family = [psutil.Process(), *psutil.Process().parents()]
    words = {word for process in family for word in _words(process)}
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


def plant() -> None:
    """In what this process imports from now on."""
    sys.meta_path.insert(0, _Planter())


def follow_clock() -> None:
    """On a thread, which imports nothing: it would find half of a module that the process is importing."""
    import psutil
    import time_machine

    threading.Thread(target=_follow_clock, args=(psutil, time_machine), daemon=True).start()


if FOLDER in os.environ:
    plant()
    follow_clock()
