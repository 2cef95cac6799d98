"""Imports of pandas fail at once in processes that use DuckDB.

DuckDB tries to import it twice for each value that is bound, to see whether it is one of pandas'; none of ours is.
Where pandas is missing, each try would search every folder of modules; where it is installed, the first costs 70 MB and
half a second.
"""

from __future__ import annotations

import sys


class _WithoutPandas:
    """A finder of modules, asked before any other."""

    @staticmethod
    def find_spec(fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("Viaduck's processes do without it", name=fullname)


def without_pandas() -> None:
    """From now on, in this process. What imported pandas before keeps it."""
    if _WithoutPandas not in sys.meta_path:
        sys.meta_path.insert(0, _WithoutPandas)
