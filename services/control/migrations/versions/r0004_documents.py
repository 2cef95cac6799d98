"""Pipelines that come over REST.

Revision ID: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "documents",
        sa.Column("pipeline", sa.String(200), primary_key=True),
        sa.Column("content", sa.Text),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("author", sa.String(200)),
        sa.Column("updated_at", sa.String(32), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("documents")
