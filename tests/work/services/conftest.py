"""Fixtures of this folder; they are made in `tests.support.services`."""

from tests.support.services import ground, house  # noqa: F401
