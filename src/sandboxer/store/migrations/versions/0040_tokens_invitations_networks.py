"""A key may have a bearer token, of which the hash is kept. A wallet's session says from which network it was
opened, and a sandbox which network it was asked to have. An account is marked that the operator opened or
gave a key; the audit log says which were before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0036"


def upgrade() -> None:
    op.add_column("keys", sa.Column("bearer_hash", sa.Text, nullable=True))
    op.create_index("ix_keys_bearer_hash", "keys", ["bearer_hash"])
    op.add_column("wallet_sessions", sa.Column("network", sa.Text, nullable=False, server_default=""))
    op.create_index("ix_wallet_sessions_network", "wallet_sessions", ["network"])
    op.add_column("sandboxes", sa.Column("network", sa.Text, nullable=True))
    op.add_column("accounts", sa.Column("is_invited", sa.Boolean, nullable=False, server_default=sa.false()))
    _mark_invited()


def _mark_invited() -> None:
    accounts = sa.table("accounts", sa.column("id"), sa.column("is_invited"))
    log = sa.table("audit_log", sa.column("action"), sa.column("subject"), sa.column("data", sa.JSON))
    conn = op.get_bind()
    made = conn.execute(sa.select(log).where(log.c.action.in_(("account.create", "key.create")))).all()
    invited = {row.data.get("account", "") if row.action == "key.create" else row.subject for row in made}
    for account in sorted(invited):
        conn.execute(sa.update(accounts).where(accounts.c.id == account).values(is_invited=True))
