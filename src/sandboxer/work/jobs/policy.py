"""How many jobs may run and wait, and how long ended ones are kept. Values only: settings read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    running_per_account: int
    running: int
    queued_per_account: int
    queued: int = 10_000
    # Of what those that wait were given: code, files, input.
    queued_bytes_per_account: int = 64 << 20
    queued_bytes: int = 1 << 30
    retention: timedelta
    # Of what ended jobs of one account printed; beyond it the oldest outputs go.
    kept_bytes: int = 256 * 1024 * 1024
