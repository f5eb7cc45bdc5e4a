"""Counts requests, in memory. At most `limit` in *any* minute, and a Retry-After that is exactly true.

For each name the moments of its last `limit` admitted requests are kept in a ring: a request is admitted if
the oldest of them is a minute ago, and if not, that moment says how long to wait. A refused request costs
nothing, so whoever waits as told is admitted (unless others of its account or address came first).

Names not heard of for a minute are forgotten, and never more than `max_names` are kept: the longest silent
go first. That forgives them at most a minute's worth; it never refuses anyone wrongly.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Iterable

from sandboxer.accounts.limits import Quota
from sandboxer.kernel.errors import TooManyRequests

WINDOW_S = 60.0
MAX_NAMES = 50_000
# Silent names looked at per request: more than one comes in per request, so the silent never pile up.
_SWEEP = 8


class Limiter:
    """`now` is in seconds of a clock that never goes back (`time.monotonic`)."""

    def __init__(self, *, max_names: int = MAX_NAMES, window_s: float = WINDOW_S) -> None:
        self._rings: OrderedDict[str, _Ring] = OrderedDict()
        self._max_names = max_names
        self._window_s = window_s

    def __len__(self) -> int:
        return len(self._rings)

    def admit(self, quotas: Iterable[Quota], *, now: float) -> None:
        """Count a request against all its quotas, or raise TooManyRequests and count it against none."""
        wanted = tuple(quotas)
        if refusal := self._longest(wanted, now):
            quota, wait_s = refusal
            raise TooManyRequests(
                limit=quota.limit,
                per=quota.name.partition(":")[0],
                # Whole seconds are what the header can say; rounded up, or it would be a lie.
                retry_after_s=max(1, math.ceil(wait_s)),
                hint=_hint(quota),
            )
        for quota in wanted:
            self._ring(quota).add(now)
        self._forget(now)

    def wait_s(self, quotas: Iterable[Quota], *, now: float) -> float:
        """How long until these would be admitted; zero: now. Counts nothing."""
        refusal = self._longest(tuple(quotas), now)
        return 0.0 if refusal is None else refusal[1]

    def used(self, name: str, *, now: float) -> int:
        """Requests counted for a name in the last minute."""
        ring = self._rings.get(name)
        return 0 if ring is None else ring.since(now - self._window_s)

    def _longest(self, quotas: tuple[Quota, ...], now: float) -> tuple[Quota, float] | None:
        waits = []
        for quota in quotas:
            ring = self._rings.get(quota.name)
            if ring is not None and (wait := ring.wait_s(quota.limit, now, self._window_s)) > 0:
                waits.append((quota, wait))
        return max(waits, key=lambda found: found[1], default=None)

    def _ring(self, quota: Quota) -> _Ring:
        ring = self._rings.get(quota.name)
        if ring is None:
            ring = self._rings[quota.name] = _Ring()
        self._rings.move_to_end(quota.name)
        ring.fit(quota.limit)
        return ring

    def _forget(self, now: float) -> None:
        for _ in range(_SWEEP):
            name, ring = next(iter(self._rings.items()), (None, None))
            if name is None or ring is None:
                return
            if len(self._rings) <= self._max_names and ring.newest > now - self._window_s:
                return
            del self._rings[name]


class _Ring:
    """The moments of the last `limit` requests; eight bytes each, and only as many as there were."""

    __slots__ = ("_limit", "_moments", "_oldest")

    def __init__(self) -> None:
        self._moments = array("d")
        self._oldest = 0
        self._limit = 0

    @property
    def newest(self) -> float:
        return self._moments[self._oldest - 1] if self._moments else -math.inf

    def fit(self, limit: int) -> None:
        """Another tier, another limit: keep the newest."""
        if limit != self._limit:
            self._moments = array("d", self._ordered()[-limit:])
            self._oldest = 0
            self._limit = limit

    def add(self, now: float) -> None:
        if len(self._moments) < self._limit:
            self._moments.append(now)
        else:
            self._moments[self._oldest] = now
            self._oldest = (self._oldest + 1) % self._limit

    def wait_s(self, limit: int, now: float, window_s: float) -> float:
        """Until fewer than `limit` lie in the window that ends then. One exactly a window old has left it."""
        if len(self._moments) < limit:
            return 0.0
        # With an unchanged limit this is the oldest; after a change, the one that has to leave.
        leaves = self._moments[self._oldest] if limit == self._limit else self._ordered()[-limit]
        return max(0.0, leaves + window_s - now)

    def since(self, moment: float) -> int:
        return sum(1 for m in self._moments if m > moment)

    def _ordered(self) -> array[float]:
        return self._moments[self._oldest :] + self._moments[: self._oldest]


def _hint(quota: Quota) -> str:
    kind = quota.name.partition(":")[0]
    if kind == "wakes-sandbox":
        return "Wait retry_after_s seconds; this sandbox was woken too often. Its owner can keep it awake."
    if kind.endswith("address"):
        return "Wait retry_after_s seconds; this address sends too much, whichever key it uses."
    return "Wait retry_after_s seconds; tiers may allow more a minute (GET /v1/pricing)."
