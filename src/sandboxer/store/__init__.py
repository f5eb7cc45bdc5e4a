"""The database: engine, transactions, migrations, outbox, idempotency. Knows no room above it."""
