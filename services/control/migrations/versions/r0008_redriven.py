"""Which rejected records were sent to their topic again.

Revision ID: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "redriven",
        sa.Column("pipeline", sa.String(200), primary_key=True),
        sa.Column("place", sa.String(64), primary_key=True),
        sa.Column("partition", sa.BigInteger, nullable=False),
        sa.Column("offset", sa.BigInteger, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("author", sa.String(200)),
        sa.Column("confirmed", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("redriven")
