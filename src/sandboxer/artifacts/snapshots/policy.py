"""How many snapshots an account may keep, and how long unpaid ones stay. Space itself is the operator's
concern.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sandboxer.kernel.errors import Forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """How much an account keeps."""

    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    per_account: int = 100
    bytes_per_account: int = 100 << 30
    retention: timedelta = timedelta(days=7)


def check_room(held: Holding, policy: SnapshotPolicy, *, more_bytes: int) -> None:
    """Raises Forbidden if one more would be too many or too much."""
    if held.count >= policy.per_account:
        raise Forbidden(
            why=f"an account may keep {policy.per_account} snapshots",
            reason="snapshot_quota",
            limit=policy.per_account,
            hint="Drop one that is not needed any more (DELETE /v1/snapshots/{id}).",
        )
    if held.size_bytes + more_bytes > policy.bytes_per_account:
        raise Forbidden(
            why=f"an account may keep {policy.bytes_per_account >> 20} MB in snapshots",
            reason="snapshot_quota",
            limit_bytes=policy.bytes_per_account,
            held_bytes=held.size_bytes,
            hint="Drop one that is not needed any more (DELETE /v1/snapshots/{id}).",
        )
