"""The platform of `tests/sandboxes`, for what outlives its sandboxes."""

from tests.sandboxes.conftest import backend, clock, open_one

__all__ = ["backend", "clock", "open_one"]
