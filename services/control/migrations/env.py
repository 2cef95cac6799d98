"""Alembic's entry point: runs the revisions on the connection, and in the transaction, that ``migrate`` hands over."""

from __future__ import annotations

from alembic import context

from services.control.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
