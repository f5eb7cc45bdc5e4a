"""Fixtures of this folder; they are made in `tests.support.services`."""

from tests.support.services import reopenable, shared_platform  # noqa: F401
