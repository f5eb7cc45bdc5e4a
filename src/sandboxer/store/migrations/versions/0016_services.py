"""Services: long-running processes with a name, and the domains they answer under."""

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import JsonValue, UtcDateTime

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    _services()
    _domains()


def _services() -> None:
    op.create_table(
        "services",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("slug", sa.Text, nullable=False),
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("state_since", UtcDateTime, nullable=False),
        sa.Column("is_wanted", sa.Boolean, nullable=False),
        sa.Column("spec", JsonValue, nullable=False),
        sa.Column("vault", sa.LargeBinary),
        sa.Column("vault_names", JsonValue, nullable=False),
        sa.Column("vault_at", UtcDateTime),
        sa.Column("process_id", sa.Text),
        sa.Column("port", sa.Integer),
        sa.Column("launched_at", UtcDateTime),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("crashes", JsonValue, nullable=False),
        sa.Column("restart_at", UtcDateTime),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("deployed_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_services"),
        sa.UniqueConstraint("slug", name="uq_services_slug"),
        sa.UniqueConstraint("sandbox_id", name="uq_services_sandbox_id"),
    )
    op.create_index(
        "ix_services_account_name",
        "services",
        ["account", "name"],
        unique=True,
        sqlite_where=sa.text("state <> 'removed'"),
        postgresql_where=sa.text("state <> 'removed'"),
    )


def _domains() -> None:
    op.create_table(
        "service_domains",
        sa.Column("domain", sa.Text, nullable=False),
        sa.Column("service_id", sa.Text, nullable=False),
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("verified_at", UtcDateTime),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("domain", "service_id", name="pk_service_domains"),
        sa.ForeignKeyConstraint(
            ["service_id"], ["services.id"], name="fk_service_domains_service_id_services"
        ),
    )
    op.create_index(
        "ix_service_domains_verified",
        "service_domains",
        ["domain"],
        unique=True,
        sqlite_where=sa.text("verified_at IS NOT NULL"),
        postgresql_where=sa.text("verified_at IS NOT NULL"),
    )
    op.create_index("ix_service_domains_service_id", "service_domains", ["service_id"])
