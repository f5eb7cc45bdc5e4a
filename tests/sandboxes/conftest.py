"""Fixtures of this folder; they are made in `tests.support`."""

from tests.support.routes import open_with  # noqa: F401
from tests.support.sandboxes import backend, clock, open_one  # noqa: F401
