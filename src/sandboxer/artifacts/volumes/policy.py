"""How much an account may have in volumes, and how long unpaid ones stay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from sandboxer.kernel.errors import Forbidden

MB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    count: int
    size_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePolicy:
    per_account: int = 100
    mb_per_account: int = 100 * 1024
    retention: timedelta = timedelta(days=7)


def check_room(held: Held, policy: VolumePolicy, *, more: int, more_mb: int) -> None:
    """Raises Forbidden if `more` volumes with `more_mb` together would be too many or too much."""
    hint = "Remove one that is not needed any more (DELETE /v1/volumes/{id}), or make one smaller."
    if more and held.count + more > policy.per_account:
        raise Forbidden(
            why=f"an account may have {policy.per_account} volumes",
            reason="volume_quota",
            limit=policy.per_account,
            hint=hint,
        )
    if more_mb > 0 and held.size_mb + more_mb > policy.mb_per_account:
        raise Forbidden(
            why=f"an account may have {policy.mb_per_account} MB in volumes",
            reason="volume_quota",
            limit_bytes=policy.mb_per_account * MB,
            held_bytes=held.size_mb * MB,
            hint=hint,
        )
