"""How the table of a destination is to be laid out, as a file, an operator and messages say it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

SAME = "same"
"""In place of a list of columns: as the source's table."""


class TableLayout(BaseModel):
    """The texts are a list of columns and transforms (``shared.config.table_layout``), ``SAME``, or empty for none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    partitioned_by: str = ""
    sorted_by: str = ""
    encrypted: bool = False
    """The lake is created with encrypted files; a lake that exists already has to have them."""

    @property
    def text(self) -> str:
        """As the page and a status show it."""
        parts = [f"partitioned by {self.partitioned_by}"] * bool(self.partitioned_by)
        parts += [f"sorted by {self.sorted_by}"] * bool(self.sorted_by) + ["encrypted"] * self.encrypted
        return "; ".join(parts) or "neither partitioned, sorted nor encrypted"


NO_LAYOUT = TableLayout()
