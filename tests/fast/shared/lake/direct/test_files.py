"""How a data file is written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from shared.lake.columns.history import Field
from shared.lake.connection.engine import connect
from shared.lake.direct.files import GROUP_BYTES, GROUP_ROWS, VECTOR_ROWS, group_rows, write_data


@pytest.mark.parametrize(
    ("row_bytes", "rows"), [(0.0, GROUP_ROWS), (100.0, GROUP_ROWS), (380.0, 40_960), (5_000.0, 2_048), (1e9, 2_048)]
)
def test_a_row_group_is_bounded_in_bytes_and_consists_of_whole_vectors(row_bytes: float, rows: int) -> None:
    assert group_rows(row_bytes) == rows
    assert rows * row_bytes <= GROUP_BYTES or rows == VECTOR_ROWS


def test_a_file_has_such_row_groups(tmp_path: Path) -> None:
    fields = [Field(1, "n", "int64", ())]
    with closing(connect(catalogs=())) as con:
        con.execute("CREATE TABLE memory.main.rows AS SELECT range AS n FROM range(10_000)")
        data = write_data(con, f"{tmp_path}/", "memory.main.rows", fields, GROUP_BYTES / (2 * VECTOR_ROWS))
    written = pq.ParquetFile(tmp_path / data.name).metadata
    groups = [written.row_group(number).num_rows for number in range(written.num_row_groups)]
    assert groups == [4_096, 4_096, 1_808]
