"""Fixtures of this folder; they are made in `tests.support.identity`."""

from tests.support.identity import gate  # noqa: F401
