"""Fixtures of this folder; they are made in `tests.support.access`."""

from tests.support.access import proxied, pytest_asyncio_loop_factories, real  # noqa: F401
