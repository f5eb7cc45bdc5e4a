"""No two living sandboxes of an account have the same name. Where they had, the youngest keeps it, and the
others get the end of their ids behind it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"

_IS_NAMED = sa.text("name IS NOT NULL AND state NOT IN ('destroyed', 'destroying', 'expired', 'failed')")


def upgrade() -> None:
    sandboxes = sa.table("sandboxes", *map(sa.column, ("id", "account", "name", "created_at")))
    conn, seen = op.get_bind(), set()
    named = sa.select(sandboxes).where(_IS_NAMED).order_by(sandboxes.c.created_at.desc())
    for row in conn.execute(named).all():
        if (row.account, row.name) in seen:
            other = f"{row.name[:54]}-{row.id[-8:]}"
            conn.execute(sa.update(sandboxes).where(sandboxes.c.id == row.id).values(name=other))
        seen.add((row.account, row.name))
    op.create_index(
        "ix_sandboxes_account_name",
        "sandboxes",
        ["account", "name"],
        unique=True,
        sqlite_where=_IS_NAMED,
        postgresql_where=_IS_NAMED,
    )
