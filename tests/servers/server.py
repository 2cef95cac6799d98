"""What every server of the tests is: a context that starts it, and ends and deletes it also after a failed start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Server(ABC):
    @abstractmethod
    def open(self) -> None:
        """Start it, and wait until it answers."""

    @abstractmethod
    def close(self) -> None:
        """End it and delete everything, however far ``open`` got."""

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
