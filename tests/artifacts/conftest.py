"""The platform of `tests/sandboxes`, for what outlives its sandboxes."""

from tests.support.sandboxes import backend, clock, open_one

__all__ = ["backend", "clock", "open_one"]
