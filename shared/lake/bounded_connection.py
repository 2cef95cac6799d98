"""A connection to Postgres whose client waits no longer than it says."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

SILENT_FOR_S = 20.0
"""Beyond the limits that the server keeps itself while it answers. ``viaduck`` waits 30 s for an answer of control."""

PING_WITHIN_S = 3.0
WAKE_EVERY_S = 0.1

T = TypeVar("T")


class BoundedConnection(psycopg.Connection[Any]):
    """Ends if the server is silent, although its machine, or a proxy before it, confirms what is sent.

    No limit of the server and none of TCP covers that.
    """

    silent_for_s = SILENT_FOR_S
    ping_within_s = PING_WITHIN_S
    """Outside of transactions, where SQLAlchemy asks only whether the server is still there."""

    def wait(self, gen: PQGen[T], interval: float = WAKE_EVERY_S, timeout: float | None = None) -> T:
        within_s = timeout or (self.ping_within_s if self.autocommit else self.silent_for_s)
        try:
            return super().wait(gen, interval, within_s)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            self.pgconn.finish()  # an answer that still comes would be taken for another question's
            raise psycopg.OperationalError(f"no answer within {within_s:g} s") from None
