"""Fixtures of this folder; they are made in `tests.support.http.served`."""

from tests.support.http.served import served, settings  # noqa: F401
