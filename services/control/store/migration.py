"""Brings a registry's tables to the shape that this version of control knows, by Alembic's revisions."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from shared.contracts.errors import DependencyError

HEAD = "0009"
"""The newest revision that this version of control brings."""

SCRIPTS = Path(__file__).parents[1] / "migrations"


def migrate(con: Connection) -> None:
    """Run what is missing, in the transaction that ``con`` is in. Raises ``DependencyError`` for a newer registry.

    A current registry is only asked for its revision, so control's role needs no right to change tables then.
    """
    found = MigrationContext.configure(con).get_current_revision()
    if found == HEAD:
        return
    if found is not None and found > HEAD:
        raise DependencyError(
            "registry",
            f"its tables are of revision {found}, and this version of control knows up to {HEAD}",
            "a newer control has used it: run that one, or give this one a registry of its own",
        )
    command.upgrade(scripts(con), HEAD)


def scripts(con: Connection) -> Config:
    """Alembic's configuration; there is no alembic.ini, because Alembic is not run by hand."""
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.attributes["connection"] = con
    return config
