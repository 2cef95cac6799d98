"""Brings a registry's tables to the shape that this version of control knows, by Alembic's revisions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from shared.contracts.errors import DependencyError

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0009"
"""The newest revision that this version of control brings."""

SCRIPTS = Path(__file__).parents[1] / "migrations"


def migrate(con: Connection) -> None:
    """Run what is missing, in the transaction that ``con`` is in. Raises ``DependencyError`` for a newer registry.

    A current registry is only asked for its revision, so control's role needs no right to change tables then.
    """
    found = _revision(con)
    if found == HEAD:
        return
    if found is not None and found > HEAD:
        raise DependencyError(
            "registry",
            f"its tables are of revision {found}, and this version of control knows up to {HEAD}",
            "a newer control has used it: run that one, or give this one a registry of its own",
        )
    from alembic import command  # most starts of control find a current registry, and Alembic is a tenth of a start

    command.upgrade(scripts(con), HEAD)


def _revision(con: Connection) -> str | None:
    """As Alembic keeps it; None where it has made nothing yet."""
    if not inspect(con).has_table("alembic_version"):
        return None
    found = con.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return None if found is None else str(found)


def scripts(con: Connection) -> Config:
    """Alembic's configuration; there is no alembic.ini, because Alembic is not run by hand."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.attributes["connection"] = con
    return config
