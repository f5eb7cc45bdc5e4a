"""Alembic's folder: `env.py` runs inside `sandboxer.store.migrate`, steps live in `versions/`."""
