"""By what rows are chosen for destinations, as services tell each other: their files may differ for a while."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import BaseModel, ConfigDict


class RoutedBy(BaseModel):
    """A routing column by its configured name, and whether destinations are only ever appended to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str
    """In lower case: names compare as DuckDB compares them."""
    append_only: bool = False

    def means(self, other: RoutedBy, own_names: Collection[str]) -> bool:
        """Whether both choose the same rows. ``own_names``: those that mean this column, and never another one."""
        same_column = self.field == other.field or {self.field, other.field} <= {*own_names}
        return same_column and self.append_only == other.append_only

    def __str__(self) -> str:
        return f"{self.field!r}, {'append-only' if self.append_only else 'with key columns'}"
