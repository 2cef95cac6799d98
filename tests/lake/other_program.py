"""Files of a lake as another program might have written them: without field ids, or with columns of other names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq


def rewrite(
    con: duckdb.DuckDBPyConnection, alias: str, folder: Path, names: Mapping[str, str], but: Collection[Path] = ()
) -> None:
    """Rewrite all files of a lake that ``con`` has attached, ``but`` some. Columns get their ``names``; without any,
    field ids go."""
    for path in set(folder.rglob("*.parquet")) - {*but}:
        rows = pq.read_table(path)
        fields = [
            pa.field(names.get(each.name, each.name), each.type, metadata=each.metadata if names else None)
            for each in rows.schema
        ]
        pq.write_table(pa.table(rows.columns, schema=pa.schema(fields)), path)
        footer = int.from_bytes(path.read_bytes()[-8:-4], "little")
        for kind in ("data", "delete"):
            con.execute(
                f"UPDATE __ducklake_metadata_{alias}.ducklake_{kind}_file SET file_size_bytes = ?, footer_size = ?"
                " WHERE path = ?",
                [path.stat().st_size, footer, path.name],
            )
