"""Alembic runs this file; the connection and its transaction belong to `migrate` of this package."""

from alembic import context

# `transactional_ddl`: on SQLite too a failed step leaves nothing behind, since the transaction is ours.
context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
