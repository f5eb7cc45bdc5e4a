"""Decides how much an account may keep of one kind, and says how long unpaid things stay. The operator's disk
space is another matter: the pool decides about that.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sandboxer.kernel.errors import Forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """How much an account keeps of one kind."""

    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepPolicy:
    """The limits of one account for one kind, and how long unpaid ones are kept."""

    per_account: int = 100
    bytes_per_account: int = 100 << 30
    retention: timedelta = timedelta(days=7)


def check_room(held: Holding, policy: KeepPolicy, noun: str, *, more: int = 1, more_bytes: int) -> None:
    """Raises Forbidden if `more` of them, with `more_bytes` together, would be too many or too much."""
    hint = f"Remove one that is not needed any more (DELETE /v1/{noun}s/{{id}})."
    if more and held.count + more > policy.per_account:
        raise Forbidden(
            why=f"an account may keep {policy.per_account} {noun}s",
            reason=f"{noun}_quota",
            limit=policy.per_account,
            hint=hint,
        )
    if (more or more_bytes > 0) and held.size_bytes + more_bytes > policy.bytes_per_account:
        raise Forbidden(
            why=f"an account may keep {policy.bytes_per_account >> 20} MB in {noun}s",
            reason=f"{noun}_quota",
            limit_bytes=policy.bytes_per_account,
            held_bytes=held.size_bytes,
            hint=hint,
        )
