"""Fixtures of this folder; they are made in `tests.support.accounts`."""

from tests.support.accounts import conn, engine, shared_engine  # noqa: F401
