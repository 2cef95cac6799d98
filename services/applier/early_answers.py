"""Hears the answers that a job's workers leave in its folder while the job goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from services.applier.worker.answer_files import take
from shared.contracts.messages import Progress

LISTEN_EVERY_S = 0.5

Hear = Callable[[Sequence[Progress]], None]


def wait_for_the_end(_: Sequence[Progress]) -> None:
    """For who has time until the job's results."""


@contextmanager
def heard(folder: Path, hear: Hear) -> Iterator[None]:
    """Hands over what comes meanwhile, on a thread of its own, which is over when this is.

    Raises at the end what ``hear`` raised, and hands over nothing more after that.
    """
    listener = _Listener(folder, hear)
    listener.start()
    try:
        yield
    finally:
        listener.end()
    if listener.error is not None:
        raise listener.error


class _Listener(threading.Thread):
    def __init__(self, folder: Path, hear: Hear) -> None:
        super().__init__(name="early answers", daemon=True)
        self._folder = folder
        self._hear = hear
        self._over = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._over.wait(LISTEN_EVERY_S):
                answers = take(self._folder)
                if answers:
                    self._hear(answers)
        except Exception as error:  # raised where the job was begun
            self.error = error

    def end(self) -> None:
        self._over.set()
        self.join()
