"""Keeps records in the database: transactions, migrations, repositories, idempotency. It knows no package
above it.
"""
