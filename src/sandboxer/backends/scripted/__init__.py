"""A fake backend that ships with the product: sandboxes in memory that fail by script."""

from __future__ import annotations

from collections.abc import Mapping

from sandboxer.backends.scripted.backend import Scripted, open_backend

# What it cannot do of the contract suite, and why.
DEVIATIONS: Mapping[str, str] = {
    "a_terminal_is_a_terminal_of_the_size_asked_for": "the fake has no terminals: its shell knows no stty",
}

__all__ = ["DEVIATIONS", "Scripted", "open_backend"]
