"""The shipped fake: sandboxes in memory that fail by script."""

from sandboxer.backends.scripted.backend import Scripted, open_backend

__all__ = ["Scripted", "open_backend"]
