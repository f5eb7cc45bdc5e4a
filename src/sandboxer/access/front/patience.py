"""How long a connection may take for each part of its conversation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds that a connection may spend."""

    # From being accepted to the first byte.
    first_byte_s: float = 15.0
    # Between two requests.
    idle_s: float = 75.0
    # From the first byte of a head to its last.
    head_s: float = 15.0
    # Without a byte of a body that was announced.
    body_s: float = 30.0
    # Until the program inside begins its answer.
    answer_s: float = 120.0
    # Without taking anything of an answer.
    reader_s: float = 60.0
    # Without taking the rest of what was written before it was closed.
    closing_s: float = 10.0
