"""Connections to the world that may carry another request: one sandbox's, to one host, for a while."""

from __future__ import annotations

import asyncio

from sandboxer.access.egress.proxy.wire import Wire

# Shorter than any server's own patience with idle connections that we know of (Node: 5 s).
IDLE_S = 4.0
# After it a name is looked up and judged again, however busy the connection is.
AGE_S = 60.0
MOST = 16

Where = tuple[str, int, bool]


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
            # Whatever it said unasked is no answer to what is asked next.
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
        """The rules changed, or the sandbox is gone."""
        kept, self._kept, self._count = self._kept, {}, 0
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for wires in kept.values():
            for _, wire in wires:
                wire.abort()

    def _close_old(self, before: float) -> None:
        """Those that lie here since then, and those that hung up."""
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
