"""Which pipelines a token is for; null for all, as those that there were are.

Revision ID: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("pipelines", sa.Text))


def downgrade() -> None:
    op.drop_column("tokens", "pipelines")
