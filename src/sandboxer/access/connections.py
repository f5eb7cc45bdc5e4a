"""Which connections may stay: counted for each address, each account and in all, for every listener together.

A newcomer is nobody yet, so it is never refused while somebody else only waits: the connection that has been
silent the longest gives way, first one of the same address. A connection that has carried an authenticated
request counts for its account and no longer for its address.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sandboxer.accounts.limits import Network, client_address, is_trusted
from sandboxer.kernel.fairness import Turns


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


log = logging.getLogger(__name__)
SWEEP_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBounds:
    # All listeners together.
    most: int = 8192
    # From one address (IPv6: one /64) that has not said who it is.
    per_address: int = 256
    # Of one account.
    per_account: int = 512

    def within(self, descriptors: int) -> ConnectionBounds:
        """At most half of this process's descriptors: the rest is for sandboxes, the store and ourselves."""
        most = max(16, min(self.most, descriptors // 2))
        return ConnectionBounds(most=most, per_address=self.per_address, per_account=self.per_account)


class Holder(Protocol):
    """Who serves a connection right now."""

    # In the loop's time.
    deadline: float

    def overdue(self) -> None:
        """The deadline has passed."""

    def send_away(self) -> None:
        """Break off at once: another needs the place."""

    def is_ending(self) -> bool:
        """Is it closed on our side already, and only has something left to send?"""


class Slot:
    """One connection's place among the others."""

    __slots__ = ("_front", "account", "address", "closing_at", "holder", "is_inside")

    def __init__(self, front: Front, address: str | None, holder: Holder) -> None:
        self._front = front
        # None: a proxy of ours, whose connections are many callers'.
        self.address = address
        self.account: str | None = None
        self.holder = holder
        self.is_inside = True
        self.closing_at: float | None = None

    def waits(self) -> None:
        """It waits for its client: nothing of ours is under way."""
        self._front.waits(self)

    def serves(self) -> None:
        self._front.serves(self)

    def proven(self, account: str) -> None:
        """It carried a request whose caller is known."""
        if self.account is None:
            self._front.proven(self, account)

    def leave(self) -> None:
        if self.is_inside:
            self._front.leave(self)


class Front:
    def __init__(
        self,
        bounds: ConnectionBounds,
        trusted: Sequence[Network] = (),
        patience: Patience | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.bounds = bounds
        self.patience = patience or Patience()
        self.turns = turns or Turns()
        self.slots: set[Slot] = set()
        self._trusted = trusted
        self._unknown: Counter[str] = Counter()
        self._accounts: Counter[str] = Counter()
        # They wait for their clients, the longest first: unknown ones by address and in all; known ones.
        self._waiting_of: dict[str, OrderedDict[Slot, None]] = {}
        self._waiting: OrderedDict[Slot, None] = OrderedDict()
        self._idle: OrderedDict[Slot, None] = OrderedDict()

    def enter(self, peer: str | None, holder: Holder) -> Slot | None:
        """A place for a new connection, which waits for its first byte. None: there is none."""
        address = None if is_trusted(peer, self._trusted) else client_address(peer, (), ())
        if address is not None and self._unknown[address] >= self.bounds.per_address:
            ours = self._waiting_of.get(address)
            if not ours:
                return None
            self._send_away(next(iter(ours)))
        if len(self.slots) >= self.bounds.most:
            waiting = self._waiting or self._idle
            if not waiting:
                return None
            self._send_away(next(iter(waiting)))
        slot = Slot(self, address, holder)
        self.slots.add(slot)
        if address is not None:
            self._unknown[address] += 1
        self.waits(slot)
        return slot

    def waits(self, slot: Slot) -> None:
        if not slot.is_inside:
            return
        if slot.account is not None:
            self._idle[slot] = None
            return
        self._waiting[slot] = None
        if slot.address is not None:
            self._waiting_of.setdefault(slot.address, OrderedDict())[slot] = None

    def serves(self, slot: Slot) -> None:
        if slot.account is not None:
            self._idle.pop(slot, None)
            return
        self._waiting.pop(slot, None)
        if slot.address is not None:
            ours = self._waiting_of.get(slot.address)
            if ours is not None:
                ours.pop(slot, None)
                if not ours:
                    del self._waiting_of[slot.address]

    def proven(self, slot: Slot, account: str) -> None:
        if not slot.is_inside or self._accounts[account] >= self.bounds.per_account:
            # Beyond its account's share it stays one of its address.
            return
        self.serves(slot)
        slot.account = account
        self._accounts[account] += 1
        self._forget_address(slot)

    def leave(self, slot: Slot) -> None:
        slot.is_inside = False
        self.slots.discard(slot)
        self.serves(slot)
        if slot.account is None:
            self._forget_address(slot)
        else:
            _less(self._accounts, slot.account)

    def spend(self, slot: Slot | None, seconds: float) -> float:
        """How long this connection waits after a slice of work on the loop for what came by it."""
        owner = "" if slot is None else slot.account or f"address:{slot.address}"
        return self.turns.spend(owner, seconds, time.monotonic())

    async def watch(self) -> None:
        """End what is slow or silent for too long. Runs as long as anybody listens."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                self.sweep(loop.time())
            except Exception:
                # An outermost loop: one odd connection must not keep the others for ever.
                log.exception("could not look after the connections")

    def sweep(self, now: float) -> None:
        for slot in list(self.slots):
            holder = slot.holder
            if holder.is_ending():
                # A close waits for its last bytes to be taken; who takes none would never go.
                slot.closing_at = slot.closing_at or now + self.patience.closing_s
                if slot.closing_at < now:
                    holder.send_away()
            elif holder.deadline < now:
                holder.overdue()

    def _send_away(self, slot: Slot) -> None:
        # It is gone for us at once; its protocol hears of the end a little later.
        self.leave(slot)
        slot.holder.send_away()

    def _forget_address(self, slot: Slot) -> None:
        if slot.address is not None:
            _less(self._unknown, slot.address)


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
