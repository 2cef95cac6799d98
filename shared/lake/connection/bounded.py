"""A connection to Postgres whose client waits no longer than it says."""

from __future__ import annotations

import select
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

SILENT_FOR_S = 40.0
"""Beyond the limits that servers keep themselves while they answer."""

WAKE_EVERY_S = 0.1

T = TypeVar("T")


class BoundedConnection(psycopg.Connection[Any]):
    """Ends if the server is silent, although its machine, or a proxy before it, confirms what is sent.

    No limit of the server and none of TCP covers that.
    """

    silent_for_s = SILENT_FOR_S

    @property
    def patience_s(self) -> float:
        """How long the client waits for the next answer."""
        return self.silent_for_s

    def wait(self, gen: PQGen[T], interval: float = WAKE_EVERY_S, timeout: float | None = None) -> T:
        within_s = timeout or self.patience_s
        try:
            return super().wait(gen, interval, within_s)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            self.pgconn.finish()  # an answer that still comes would be taken for another question's
            raise psycopg.OperationalError(f"no answer within {within_s:g} s") from None


def has_ended(con: psycopg.Connection[Any]) -> bool:
    """Whether there is something to read although nothing was asked: the server ends the connection. No round trip."""
    waiting = select.poll()
    waiting.register(con.fileno(), select.POLLIN)
    return bool(waiting.poll(0))
