"""How often a domain's proof is looked at again, and how long it may be missing. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainPolicy:
    every: timedelta = timedelta(hours=24)
    grace: timedelta = timedelta(hours=72)
