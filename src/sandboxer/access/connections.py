"""Decides which connections may stay. They are counted per address, per account and in all, for every
listener together.

A new connection has no known caller, so it is never refused while others are merely idle: the connection that
has been silent the longest is closed, first one of the same address. A connection that has carried an
authenticated request counts for its account and no longer for its address.

An address whose requests are refused over and over waits before the next one is read. A refusal costs little,
but thousands of them keep the processors busy, and everybody else waits for those.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from sandboxer.accounts.limits import Network, client_address, is_trusted
from sandboxer.identity.keys import Caller
from sandboxer.kernel.fairness import LocalAllowances, Turns, WorkBounds
from sandboxer.kernel.values import value_class


@value_class
class Patience:
    """How many seconds a connection may take for each phase."""

    # From being accepted to the first byte.
    first_byte_s: float = 15.0
    # Idle between two requests.
    idle_s: float = 75.0
    # From the first byte of a head to its last.
    head_s: float = 15.0
    # Without a byte of an announced body.
    body_s: float = 30.0
    # Until the program inside begins its answer.
    answer_s: float = 120.0
    # Without reading anything of an answer.
    reader_s: float = 60.0
    # Without reading the rest of what was written before it was closed.
    closing_s: float = 10.0


log = logging.getLogger(__name__)
SWEEP_S = 1.0
# How long a request waits at most because others of its address were refused: it may be somebody else's.
LONGEST_REST_S = 2.0


@value_class
class ConnectionBounds:
    # All listeners together.
    most: int = 8192
    # From one address (IPv6: one /64) whose caller is not known.
    per_address: int = 256
    # Of one account.
    per_account: int = 512
    # Requests a minute from one address that may be refused before it has to wait.
    refusals: int = 240

    def within(self, descriptors: int) -> ConnectionBounds:
        """Returns bounds of at most half of this process's descriptors; the rest is for sandboxes, the store
        and the server itself.
        """
        return replace(self, most=max(16, min(self.most, descriptors // 2)))


class Holder(Protocol):
    """The object that serves a connection right now."""

    # In the loop's time.
    deadline: float

    def overdue(self) -> None:
        """Called when the deadline has passed."""

    def send_away(self) -> None:
        """Closes the connection at once, because another one needs its place."""

    def is_ending(self) -> bool:
        """Tells whether it is closed on our side already and only has something left to send."""


class Slot:
    """The place of one connection among the others."""

    __slots__ = (
        "_front",
        "account",
        "address",
        "closing_at",
        "holder",
        "is_inside",
        "on_leave",
        "rest_s",
        "sandbox",
        "uid",
    )

    def __init__(self, front: Front, address: str | None, holder: Holder, uid: int | None = None) -> None:
        self._front = front
        # The user of this machine who opened it; None: it came over a network.
        self.uid = uid
        # None for a proxy of ours, whose connections belong to many callers.
        self.address = address
        self.account: str | None = None
        self.holder = holder
        self.is_inside = True
        # How long its first request waits before it is read.
        self.rest_s = 0.0
        self.closing_at: float | None = None
        # The sandbox whose programs opened it, as a caller; nothing that they say makes them another.
        self.sandbox: Caller | None = None
        self.on_leave: Callable[[], None] | None = None

    def waits(self) -> None:
        """It waits for its client: nothing of ours is under way."""
        self._front.waits(self)

    def serves(self) -> None:
        self._front.serves(self)

    def proven(self, account: str) -> None:
        """It carried a request whose caller is known."""
        if self.account is None:
            self._front.proven(self, account)

    def refused(self) -> None:
        """Its request was refused before anything was done for it."""
        self._front.refused(self)

    def leave(self) -> None:
        if self.is_inside:
            self._front.leave(self)
            if self.on_leave is not None:
                self.on_leave()


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
        self._refusals = LocalAllowances(WorkBounds(stretch_s=60.0, refill=1.0))
        self._unknown: Counter[str] = Counter()
        self._accounts: Counter[str] = Counter()
        # Idle connections, the longest idle first: those without a known caller by address and in all; those
        # with one.
        self._waiting_of: dict[str, OrderedDict[Slot, None]] = {}
        self._waiting: OrderedDict[Slot, None] = OrderedDict()
        self._idle: OrderedDict[Slot, None] = OrderedDict()

    def enter(
        self, peer: str | None, holder: Holder, uid: int | None = None, sandbox: Caller | None = None
    ) -> Slot | None:
        """Returns a slot for a new connection, which then waits for its first byte; None if there is none."""
        address = None if is_trusted(peer, self._trusted) else client_address(peer, (), ())
        if uid is not None:
            address = f"uid:{uid}"
        if sandbox is not None:
            address = sandbox.public_key
        if address is not None and self._unknown[address] >= self.bounds.per_address:
            if not (ours := self._waiting_of.get(address)):
                return None
            self._send_away(next(iter(ours)))
        if len(self.slots) >= self.bounds.most:
            waiting = self._waiting or self._idle
            if not waiting:
                return None
            self._send_away(next(iter(waiting)))
        slot = Slot(self, address, holder, uid)
        slot.sandbox = sandbox
        self.slots.add(slot)
        if address is not None:
            self._unknown[address] += 1
            slot.rest_s = min(self._refusals.owed_s(address, time.monotonic()), LONGEST_REST_S)
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
        if slot.address is not None and (ours := self._waiting_of.get(slot.address)) is not None:
            ours.pop(slot, None)
            if not ours:
                del self._waiting_of[slot.address]

    def proven(self, slot: Slot, account: str) -> None:
        if not slot.is_inside or self._accounts[account] >= self.bounds.per_account:
            # Beyond its account's share it stays counted for its address.
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
            count_less(self._accounts, slot.account)

    def spend(self, slot: Slot | None, seconds: float) -> float:
        """Returns how long this connection has to wait after it has used this much time of the loop."""
        owner = "" if slot is None else slot.account or f"address:{slot.address}"
        return self.turns.spend(owner, seconds, time.monotonic())

    def refused(self, slot: Slot) -> None:
        """Counts a refusal for its address: too many, and the first requests of new connections wait."""
        if slot.address is not None:
            self._refusals.spend(slot.address, 60.0 / self.bounds.refusals, time.monotonic())

    async def watch(self) -> None:
        """Closes connections that are slow or silent for too long. Runs as long as anybody listens."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                self.sweep(loop.time())
            except Exception:
                # An outermost loop: one odd connection must not end the watch over the others.
                log.exception("could not look after the connections")

    def sweep(self, now: float) -> None:
        for slot in list(self.slots):
            holder = slot.holder
            if holder.is_ending():
                # A close waits until its last bytes were read; a client that reads none would never go.
                slot.closing_at = slot.closing_at or now + self.patience.closing_s
                if slot.closing_at < now:
                    holder.send_away()
            elif holder.deadline < now:
                holder.overdue()

    def _send_away(self, slot: Slot) -> None:
        # Its slot is free at once; its protocol learns of the end a little later.
        self.leave(slot)
        slot.holder.send_away()

    def _forget_address(self, slot: Slot) -> None:
        if slot.address is not None:
            count_less(self._unknown, slot.address)


def count_less(counter: Counter[str], key: str) -> None:
    """Takes one away; what is counted no more is not kept."""
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
