"""Versions, the audit trail, operations and tokens; where a life was rewound to, and whether it is being removed.

Revision ID: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("pipelines", sa.Column("version", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("destinations", sa.Column("version", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("destinations", sa.Column("seed_at", sa.BigInteger))
    op.add_column("destinations", sa.Column("removing", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_index("destinations_by_version", "destinations", ["pipeline", "version"])
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("pipeline", sa.String(200), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("author", sa.String(200)),
        sa.Column("destination", sa.String(200), nullable=False),
        sa.Column("deed", sa.String(32), nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("changes", sa.Text, nullable=False),
    )
    op.create_index("audit_by_destination", "audit", ["pipeline", "destination", "id"])
    op.create_table(
        "operations",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("pipeline", sa.String(200), nullable=False),
        sa.Column("destination", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("seed_at", sa.BigInteger),
        sa.Column("author", sa.String(200)),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("finished_at", sa.String(32)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("error", sa.Text),
    )
    op.create_index("operations_by_state", "operations", ["pipeline", "state"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("scope", sa.String(8), nullable=False),
        sa.Column("salt", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("author", sa.String(200)),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("revoked_at", sa.String(32)),
    )


def downgrade() -> None:
    for table in ("tokens", "operations", "audit"):
        op.drop_table(table)
    op.drop_index("destinations_by_version", "destinations")
    for column in ("removing", "seed_at", "version"):
        op.drop_column("destinations", column)
    op.drop_column("pipelines", "version")
