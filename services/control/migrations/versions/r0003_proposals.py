"""Routing values without a destination, and which destinations appeared by themselves.

Revision ID: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("destinations", sa.Column("appeared_at", sa.String(32)))
    op.create_table(
        "proposals",
        sa.Column("pipeline", sa.String(200), primary_key=True),
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("whole", sa.Boolean, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("first_seen", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(16), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("author", sa.String(200)),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("updated_at", sa.String(32), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("proposals")
    op.drop_column("destinations", "appeared_at")
