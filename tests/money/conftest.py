"""Fixtures of this folder; they are made in `tests.support.money`."""

from tests.support.money import conn, engine  # noqa: F401
