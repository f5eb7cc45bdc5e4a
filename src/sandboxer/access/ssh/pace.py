"""How fast files may be asked about by SFTP. Who is faster waits: clients know no word for "too many".

A transfer is one request among others, but its steps are many; so they have a pace of their own, for each
account however many connections it has. Bytes are not counted here: what is read and written one piece after
the other is held up by whoever takes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STEPS_PER_S = 500.0
BURST = 2000.0
# A program started inside for what the supervisor has no word for.
PROGRAM = 4.0


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


@dataclass(slots=True)
class Pace:
    per_second: float = STEPS_PER_S
    burst: float = BURST
    _buckets: dict[str, _Bucket] = field(default_factory=dict)

    def wait_for(self, account: str, cost: float, now: float) -> float:
        """Takes it, and says how many seconds to wait before acting."""
        bucket = self._buckets.setdefault(account, _Bucket(self.burst, now))
        bucket.left = min(self.burst, bucket.left + (now - bucket.at) * self.per_second) - cost
        bucket.at = now
        return max(0.0, -bucket.left / self.per_second)

    def sweep(self, now: float) -> None:
        """Forget whom nothing holds up any more."""
        for account, bucket in list(self._buckets.items()):
            if bucket.left + (now - bucket.at) * self.per_second >= self.burst:
                del self._buckets[account]
