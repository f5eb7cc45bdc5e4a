"""The database: engine, transactions, migrations, outbox, idempotency. Knows no package above it."""
