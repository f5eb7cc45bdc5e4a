"""Accounts, delegated keys, audit log."""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

from sandboxer.kernel.ids import new_id
from sandboxer.store.metadata import JsonValue, UtcDateTime

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    _accounts()
    _delegated_keys()
    _audit()


def _accounts() -> None:
    made = op.create_table(
        "accounts",
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("public_id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("status_reason", sa.Text, nullable=False),
        sa.Column("tier", sa.Integer),
        sa.Column("entitled_until", UtcDateTime),
        sa.Column("caps", JsonValue, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("status_since", UtcDateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
        sa.UniqueConstraint("public_id", name="uq_accounts_public_id"),
    )
    op.create_index("ix_accounts_created_at_id", "accounts", ["created_at", "id"])
    # Until now an account was a name on a key. Buckets are opened when they are first asked for.
    now = datetime.now(UTC)
    names = op.get_bind().execute(sa.text("SELECT DISTINCT account FROM keys ORDER BY account")).scalars()
    rows = [
        {
            "id": name,
            "public_id": new_id("pub"),
            "kind": "owner" if name == "owner" else "customer",
            "name": name,
            "status": "active",
            "status_reason": "had a key",
            "caps": {},
            "created_at": now,
            "status_since": now,
        }
        for name in names
    ]
    if rows:
        op.bulk_insert(made, rows)


def _delegated_keys() -> None:
    op.create_table(
        "delegated_keys",
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("public_key", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("parent", sa.Text, nullable=False),
        sa.Column("root", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("cut_by", sa.Text, nullable=False),
        sa.Column("scopes", JsonValue, nullable=False),
        sa.Column("depth", sa.Integer, nullable=False),
        sa.Column("slots", sa.Integer),
        sa.Column("expires_at", UtcDateTime),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("created_at", UtcDateTime, nullable=False),
        sa.Column("ended_at", UtcDateTime),
        sa.Column("returned_sats", sa.BigInteger),
        sa.Column("kept_sats", sa.BigInteger),
        sa.PrimaryKeyConstraint("account", name="pk_delegated_keys"),
        sa.UniqueConstraint("public_key", name="uq_delegated_keys_public_key"),
    )
    op.create_index("ix_delegated_keys_parent_state", "delegated_keys", ["parent", "state"])
    op.create_index("ix_delegated_keys_root", "delegated_keys", ["root"])
    op.create_index("ix_delegated_keys_cut_by", "delegated_keys", ["cut_by"])
    op.create_index("ix_delegated_keys_state_expires_at", "delegated_keys", ["state", "expires_at"])


def _audit() -> None:
    op.create_table(
        "audit_log",
        sa.Column("seq", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("at", UtcDateTime, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("data", JsonValue, nullable=False),
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_audit_log"),
        sa.UniqueConstraint("previous", name="uq_audit_log_previous"),
    )
    op.create_index("ix_audit_log_subject_seq", "audit_log", ["subject", "seq"])
    head = op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_head"),
    )
    op.bulk_insert(head, [{"id": 1, "seq": 0, "hash": "0" * 64}])
