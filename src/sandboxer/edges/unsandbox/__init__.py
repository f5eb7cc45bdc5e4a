"""unsandbox's API, for its own clients unchanged: their words for our operations, and back."""

from __future__ import annotations
