"""Fixtures of this folder; they are made in `tests.support.sandboxes`."""

from tests.support.sandboxes import backend, clock, open_one  # noqa: F401
