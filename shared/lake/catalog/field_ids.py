"""Field ids of the columns that DuckLake adds to its Parquet files."""

from __future__ import annotations

FILE_PATH_ID, POSITION_ID = 2147483646, 2147483645
"""Of a delete file: the data file, and the place of a row in it."""

SNAPSHOT_ID = 2147483539
"""Of a data file or delete file of several snapshots: when the row came, or went."""

SNAPSHOT_COLUMN = "_ducklake_internal_snapshot_id"
"""What that one is called."""
