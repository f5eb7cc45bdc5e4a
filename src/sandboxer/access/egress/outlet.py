"""An outlet is one sandbox's way out: its present rules, its traffic, and what was refused.

A change of rules takes effect at once: connections that are no longer allowed are ended.

`Idle` keeps outgoing connections for further requests: each belongs to one sandbox and one host, for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from sandboxer.access.egress.authority import Authority
from sandboxer.access.egress.policy import Allow, Ask, Denials, Deny, Rules, decide
from sandboxer.access.egress.proxy.wire import Wire

# How much may burst beyond the rate, in seconds of that rate.
_BURST_S = 0.25
# Shorter than the idle timeout of any known server (Node: 5 s).
IDLE_S = 4.0
# After this time a name is looked up and judged again, however busy the connection is.
AGE_S = 60.0
MOST = 16


class Secrets(Protocol):
    async def value_of(self, account: str, name: str) -> str | None:
        """The secret of that name in the account's vault."""


class Flow(Protocol):
    """A request or a tunnel in progress."""

    def denial(self) -> Deny | None:
        """Returns why the present rules do not allow it."""

    def end(self, deny: Deny) -> None:
        """Called when it is no longer allowed."""

    def leave(self) -> None:
        """Called when it is idle between two requests and its place is needed."""


Where = tuple[str, int, bool]


class Outlet:
    def __init__(
        self,
        sandbox_id: str,
        account: str,
        rules: Rules,
        now: Callable[[], datetime],
        *,
        denials: Denials | None = None,
        sent: int = 0,
        received: int = 0,
        authority: Authority | None = None,
    ) -> None:
        self.sandbox_id = sandbox_id
        self.account = account
        self.rules = rules
        self.denials = denials or Denials()
        self.authority = authority
        # Bytes sent by the sandbox, and received.
        self.sent = sent
        self.received = received
        self.flows: set[Flow] = set()
        # Idle connections from inside, the longest idle first.
        self.resting: dict[Flow, None] = {}
        # Outgoing connections that may be used again.
        self.idle = Idle()
        self._now = now
        self._free_at = 0.0

    def decide(self, ask: Ask) -> Allow | Deny:
        spent = self._spent()
        return decide(self.rules, ask) if spent is None else spent

    def change(self, rules: Rules) -> int:
        """Changes the rules and returns how many connections ended by it."""
        self.rules = rules
        self.idle.close()
        ended = 0
        for flow in tuple(self.flows):
            if (deny := flow.denial()) is None:
                continue
            ended += 1
            flow.end(Deny("rules_changed", f"the rules changed while it was open: {deny.why}", deny.rule))
        return ended

    def make_room(self) -> None:
        """Closes an idle connection to make room for a waiting one."""
        for flow in self.resting:
            del self.resting[flow]
            flow.leave()
            return

    def refuse(self, deny: Deny, ask: Ask | None, said: str = "") -> None:
        self.denials.add(deny, ask, said, self._now())

    def heard(self, count: int) -> float:
        """Counts bytes from inside, whatever becomes of them; returns how long the next bytes
        have to wait.
        """
        limits = self.rules.limits
        if limits.max_bytes is not None and self.sent + self.received > limits.max_bytes:
            self._cut_off()
        if limits.bytes_per_s is None:
            return 0.0
        now = time.monotonic()
        self._free_at = max(self._free_at, now - _BURST_S) + count / limits.bytes_per_s
        return self._free_at - now

    def count_sent(self, count: int) -> None:
        """Counts what is really sent out: a refused request costs nothing."""
        self.sent += count

    def count_received(self, count: int) -> float:
        self.received += count
        return self.heard(count)

    async def turn(self) -> None:
        """Returns when the rate limit allows more: many short connections are no faster than one long one."""
        if self.rules.limits.bytes_per_s is None:
            return
        if (wait := self._free_at - time.monotonic()) > 0:
            await asyncio.sleep(wait)

    def _spent(self) -> Deny | None:
        if (most := self.rules.limits.max_bytes) is None or self.sent + self.received <= most:
            return None
        return Deny("byte_limit", f"the {most} bytes that it may move are used up")

    def _cut_off(self) -> None:
        if (spent := self._spent()) is not None:
            for flow in tuple(self.flows):
                flow.end(spent)


class Idle:
    def __init__(self) -> None:
        self._kept: dict[Where, list[tuple[float, Wire]]] = {}
        self._count = 0
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._count

    def take(self, where: Where) -> Wire | None:
        kept = self._kept.get(where)
        while kept:
            _, wire = kept.pop()
            self._count -= 1
            if not kept:
                del self._kept[where]
            # Unsolicited bytes must not be taken for the next answer.
            if not wire.has_ended and not wire.has_early_bytes:
                return wire
            wire.abort()
        return None

    def give(self, where: Where, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        if wire.has_ended or wire.is_full or self._count >= MOST or now - wire.born > AGE_S:
            wire.close()
            return
        self._kept.setdefault(where, []).append((now, wire))
        self._count += 1
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_S, self._close_old, now)

    def close(self) -> None:
        """Closes all, because the rules changed or the sandbox is gone."""
        kept, self._kept, self._count = self._kept, {}, 0
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for wires in kept.values():
            for _, wire in wires:
                wire.abort()

    def _close_old(self, before: float) -> None:
        """Closes connections that are idle for too long, and forgets those that were closed by the other
        side.
        """
        self._sweep = None
        kept, self._kept, self._count = self._kept, {}, 0
        oldest: float | None = None
        for where, wires in kept.items():
            for since, wire in wires:
                if since <= before or wire.has_ended:
                    wire.abort()
                    continue
                self._kept.setdefault(where, []).append((since, wire))
                self._count += 1
                oldest = since if oldest is None else min(oldest, since)
        if oldest is not None:
            self._sweep = asyncio.get_running_loop().call_at(oldest + IDLE_S, self._close_old, oldest)
