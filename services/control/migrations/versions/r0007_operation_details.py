"""What an operation asks for and what came of it, where that is more than a generation: upkeep.

Revision ID: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("operations", sa.Column("details", sa.Text))


def downgrade() -> None:
    op.drop_column("operations", "details")
