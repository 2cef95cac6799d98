"""Rows that a reading holds for many destinations, fetched from its instance once and handed out by destination."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True)
class Parcels:
    """``rows`` in the order of their destinations' ``numbers``, one for each row."""

    rows: pa.Table
    numbers: npt.NDArray[np.int64]

    def of(self, number: int) -> pa.Table:
        """Rows of one destination, in arrays of their own: a slice would hold on to all, and begins within an array."""
        first, end = np.searchsorted(self.numbers, (number, number + 1))
        return self.rows.take(pa.array(np.arange(first, end)))


def sorted_parcels(rows: pa.Table) -> Parcels | None:
    """Parcels of rows whose first column is the destination's number, without it; None where a type can't be taken.

    The rows of a destination keep their order.
    """
    numbers = rows.column(0).to_numpy()
    rows = rows.remove_column(0).combine_chunks()
    try:
        if np.any(numbers[1:] < numbers[:-1]):
            order = np.argsort(numbers, kind="stable")
            return Parcels(rows.take(pa.array(order)), numbers[order])
        rows.take(pa.array(np.arange(0)))
    except pa.ArrowNotImplementedError:
        return None
    return Parcels(rows, numbers)


class FetchedParcels:
    """Parcels of a reading by the name of its table; thread-safe, and each is fetched once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parcels: dict[str, Parcels | None] = {}

    def get(self, name: str, fetch: Callable[[], Parcels | None]) -> Parcels | None:
        with self._lock:
            if name not in self._parcels:
                self._parcels[name] = fetch()
            return self._parcels[name]

    def clear(self) -> None:
        with self._lock:
            self._parcels.clear()
