"""An account is marked that the operator opened or gave a key; the audit log says which were before."""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    op.add_column("accounts", sa.Column("is_invited", sa.Boolean, nullable=False, server_default=sa.false()))
    accounts = sa.table("accounts", sa.column("id"), sa.column("is_invited"))
    log = sa.table("audit_log", sa.column("action"), sa.column("subject"), sa.column("data", sa.JSON))
    conn = op.get_bind()
    made = conn.execute(sa.select(log).where(log.c.action.in_(("account.create", "key.create")))).all()
    invited = {row.data.get("account", "") if row.action == "key.create" else row.subject for row in made}
    for account in sorted(invited):
        conn.execute(sa.update(accounts).where(accounts.c.id == account).values(is_invited=True))
