"""Who revoked a token.

Revision ID: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("revoked_by", sa.String(200)))


def downgrade() -> None:
    op.drop_column("tokens", "revoked_by")
