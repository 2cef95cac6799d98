"""What a lake's owner says of a table and its columns, by COMMENT."""

from __future__ import annotations

from shared.lake.columns.terms import Comments
from shared.lake.connection.statements import CatalogConnection

COMMENTED = (
    "SELECT max(CASE WHEN g.end_snapshot IS NULL OR g.end_snapshot > :at THEN g.begin_snapshot ELSE g.end_snapshot END)"
    " FROM (SELECT object_id, key, begin_snapshot, end_snapshot FROM {}ducklake_tag"
    "  UNION ALL SELECT table_id, key, begin_snapshot, end_snapshot FROM {}ducklake_column_tag) g"
    " WHERE g.object_id = t.table_id AND g.key = 'comment' AND g.begin_snapshot <= :at"
)
"""Within a statement about a table ``t``: the newest snapshot up to ``:at`` that changed a comment of it."""

COMMENTS = (
    "SELECT NULL AS column_id, g.value FROM {}ducklake_tag g WHERE g.object_id = :table AND g.key = 'comment'"
    " AND g.begin_snapshot <= :at AND (g.end_snapshot IS NULL OR g.end_snapshot > :at)"
    " UNION ALL SELECT g.column_id, g.value FROM {}ducklake_column_tag g WHERE g.table_id = :table"
    " AND g.key = 'comment' AND g.begin_snapshot <= :at AND (g.end_snapshot IS NULL OR g.end_snapshot > :at)"
)


class CatalogComments(CatalogConnection):
    """Asks for comments; ``shared.lake.catalog`` asks for the rest."""

    def comments(self, table_id: int, at: int) -> Comments:
        """Of a table and its columns as they are at a snapshot."""
        rows = self._all(COMMENTS, table=table_id, at=at)
        said = [(row["column_id"], str(row["value"])) for row in rows if row["value"] is not None]
        columns = {int(column): text for column, text in said if column is not None}
        return Comments(next((text for column, text in said if column is None), None), columns)
