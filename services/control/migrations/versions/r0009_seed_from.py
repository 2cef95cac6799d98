"""Where a life of a topic's destination began, if not at the source's start.

Revision ID: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("destinations", sa.Column("seed_from", sa.Text))


def downgrade() -> None:
    op.drop_column("destinations", "seed_from")
