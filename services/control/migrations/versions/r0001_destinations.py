"""Pipelines and destinations. A registry that was made before there were migrations has them already."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    if sa.inspect(op.get_bind()).has_table("destinations"):
        return
    op.create_table(
        "pipelines",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("created_at", sa.String(32), nullable=False),
    )
    op.create_table(
        "destinations",
        sa.Column("pipeline", sa.String(200), sa.ForeignKey("pipelines.name"), primary_key=True),
        sa.Column("id", sa.String(200), primary_key=True),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("routing_value", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("desired", sa.String(16), nullable=False),
        sa.Column("replace", sa.Boolean, nullable=False),
        sa.Column("managed_by", sa.String(8), nullable=False),
        sa.Column("author", sa.String(200)),
        sa.Column("revision", sa.String(64), nullable=False),
        sa.Column("removed", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("updated_at", sa.String(32), nullable=False),
    )
    op.create_index("destinations_by_routing_value", "destinations", ["pipeline", "routing_value"])


def downgrade() -> None:
    op.drop_table("destinations")
    op.drop_table("pipelines")
