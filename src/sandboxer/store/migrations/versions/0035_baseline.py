"""Everything that came before, in one step."""

from alembic import op

from sandboxer.store import migrations

revision = migrations.BASELINE
down_revision = None


def upgrade() -> None:
    conn = op.get_bind()
    for statement in migrations.statements(conn.dialect.name):
        conn.exec_driver_sql(statement)
