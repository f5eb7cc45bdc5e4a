"""Puts new events into the outbox and sends what is due, a bounded number at a time. A lane is the queue of
one endpoint, or of one host of an account's one-shot messages.

Lanes do not wait for each other: each has at most one message on its way, an account (with those below it) a
few, and a lane whose receiver fails rests before its next message. A free place goes to the account that had
none for longest; a receiver that lets us wait has it for one message. While nothing is due it sleeps, until a
commit or a next moment.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection

from sandboxer.kernel.clock import Clock, sleep_unless_woken
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.tasks import TaskOwner, own_tasks
from sandboxer.observe.webhooks import endpoints, outbox
from sandboxer.observe.webhooks.carrier import Carrier, Failure, Outcome, headers_of
from sandboxer.observe.webhooks.endpoints import TOPIC, Endpoint
from sandboxer.observe.webhooks.lifecycle import rest_after
from sandboxer.observe.webhooks.outbox import Above, Delivery, Feed
from sandboxer.store.engine import Store
from sandboxer.store.reconciler import LONGEST_SLEEP, run_rounds

log = logging.getLogger(__name__)
AT_ONCE = 48
AT_ONCE_PER_ACCOUNT = 6
# Places for lanes that have not shown a quick receiver yet. The rest is for those that have, however many
# accounts let us wait.
UNPROVEN = 32
QUICK_MS = 2000
_REMEMBERED = 10_000
# Many commits in a row are one look.
PAUSE_S = 0.01
RETRY = timedelta(seconds=1)
# Messages of one lane with a quick receiver sent before others get its place.
IN_A_ROW = 20
# Fan-outs in a row before looking at what is due.
BATCHES = 4
PRUNING = timedelta(hours=6)

Opener = Callable[[Delivery, Endpoint | None, datetime], list[str]]


class DeliveryWorker:
    """Runs until cancelled. What was on its way then is sent again at the next start."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        carrier: Carrier,
        feeds: Sequence[Feed],
        open_secrets: Opener,
        above: Above,
    ) -> None:
        self._store = store
        self._clock = clock
        self._carrier = carrier
        self._feeds = tuple(feeds)
        self._open_secrets = open_secrets
        self._above = above
        self._changed = asyncio.Event()
        self._is_anyone_listening = True
        # Lanes with a message on its way, each with the account at the root of its own.
        self._on_the_way: dict[str, str] = {}
        # The lanes and root accounts that had a place, and when by count; the longest ago first.
        self._served: OrderedDict[str, int] = OrderedDict()
        self._places_given = 0
        self._failures: Counter[str] = Counter()
        self._resting: dict[str, datetime] = {}
        # Lanes whose receiver last answered without letting us wait, the longest silent first.
        self._quick: OrderedDict[str, None] = OrderedDict()
        self._awaited: dict[str, asyncio.Event] = {}
        self._prune_at = clock.now()

    async def run(self) -> None:
        async with own_tasks() as senders:
            look = partial(self._round, senders)
            await run_rounds(self._store, self._clock, self._hear, look, who_waits="webhooks wait")

    async def attempted(self, delivery: Delivery, *, within: float) -> None:
        """Waits until a delivery has been tried, or the time is over. Its lane does not rest meanwhile."""
        self._wake_lane(delivery.lane)
        bell = self._awaited.setdefault(delivery.id, asyncio.Event())
        try:
            async with asyncio.timeout(within):
                await bell.wait()
        except TimeoutError:
            log.info("delivery %s takes its time", delivery.id)
        finally:
            self._awaited.pop(delivery.id, None)

    def _wake_lane(self, lane: str) -> None:
        self._resting.pop(lane, None)
        self._changed.set()

    async def _round(self, senders: TaskOwner) -> None:
        # Cleared before reading: a commit that the read misses sets it again.
        self._changed.clear()
        now = self._clock.now()
        await self._take_news(now)
        lanes, roots = await self._store.read(self._lanes_due)
        self._forget_rested(now, lanes.keys())
        moments, ready = [], []
        for lane, due in lanes.items():
            moment = max(due, self._resting.get(lane, due))
            if lane in self._on_the_way:
                continue
            if moment > now:
                moments.append(moment)
            else:
                ready.append((self._served.get(roots[lane], 0), self._served.get(lane, 0), due, lane))
        for *_, lane in sorted(ready):
            if self._is_room_for(lane, roots[lane]):
                self._give_place(lane, roots[lane])
                senders.start(self._send(lane, roots[lane]), name=f"webhook {lane}")
        if self._is_anyone_listening:
            moments += [at for feed in self._feeds if (at := feed.next_at(now=now)) is not None]
        if lanes or self._is_anyone_listening:
            await self._prune(now)
        await self._sleep(min(moments) - now if moments else None)

    def _lanes_due(self, conn: Connection) -> tuple[dict[str, datetime], dict[str, str]]:
        """Returns when each lane is due, and the account at the root of each lane's own."""
        lanes = outbox.lanes_due(conn)
        accounts = {lane: lane.partition(" ")[0] for lane in lanes}
        above = self._above(conn, frozenset(accounts.values()))
        return lanes, {lane: (*above.get(account, ()), account)[0] for lane, account in accounts.items()}

    def _give_place(self, lane: str, root: str) -> None:
        self._on_the_way[lane] = root
        self._places_given += 1
        for name in (root, lane):
            self._served.pop(name, None)
            self._served[name] = self._places_given
        while len(self._served) > _REMEMBERED:
            self._served.popitem(last=False)

    async def _take_news(self, now: datetime) -> None:
        def look(conn: Connection) -> tuple[bool, bool]:
            is_anyone = endpoints.is_anyone_listening(conn)
            return is_anyone, is_anyone and outbox.has_news(conn, self._feeds, now=now)

        self._is_anyone_listening, is_more = await self._store.read(look)
        for _ in range(BATCHES):
            if not is_more:
                return
            is_more = await self._store.write(
                lambda conn: outbox.fan_out(conn, self._feeds, now=now, above=self._above)
            )
        # News that never end must not keep what is due from being sent.
        self._changed.set()

    async def _prune(self, now: datetime) -> None:
        if now < self._prune_at:
            return
        self._prune_at = now + PRUNING
        while await self._store.write(lambda conn: outbox.prune(conn, now=now)):
            pass

    async def _send(self, lane: str, root: str) -> None:
        """Sends messages of a lane while they are accepted at once. Never raises, or one receiver could end
        the loop.
        """
        try:
            for _ in range(IN_A_ROW):
                if not await self._send_next(lane, root) or lane not in self._quick:
                    break
        except SandboxerError as error:
            log.warning("a webhook of %s was not concluded and will be sent again: %s", lane, error)
            self._resting[lane] = self._clock.now() + RETRY
        finally:
            self._on_the_way.pop(lane, None)
            self._changed.set()

    async def _send_next(self, lane: str, root: str) -> bool:
        """Sends the next message of a lane. Returns True if there was one and it was accepted."""
        began = self._clock.now()
        found = await self._store.read(lambda conn: outbox.first_of(conn, lane, now=began))
        if found is None:
            return False
        delivery, endpoint = found
        outcome = await self._carry(delivery, endpoint, began, root)
        now, chance = self._clock.now(), random.random()
        await self._store.write(
            lambda conn: outbox.conclude(conn, delivery.id, outcome, began=began, now=now, chance=chance)
        )
        self._note(lane, outcome, now)
        if bell := self._awaited.get(delivery.id):
            bell.set()
        return outcome.is_accepted

    async def _carry(
        self, delivery: Delivery, endpoint: Endpoint | None, now: datetime, root: str
    ) -> Outcome:
        url = delivery.url or (endpoint.url if endpoint is not None else "")
        body = delivery.body.encode()
        try:
            secrets = self._open_secrets(delivery, endpoint, now)
            headers = headers_of(delivery.message, int(now.timestamp()), body, secrets)
        except SandboxerError as error:
            # Ours (a lost master key), but each message must not end the loop.
            log.error("webhook %s cannot be signed: %s", delivery.id, error)
            return Outcome(failure=Failure.UNSIGNED, reason="its secret could not be read here")
        return await self._carrier.carry(url, headers, body, owner=root)

    def _note(self, lane: str, outcome: Outcome, now: datetime) -> None:
        self._quick.pop(lane, None)
        if outcome.took_ms < QUICK_MS:
            self._quick[lane] = None
            if len(self._quick) > _REMEMBERED:
                self._quick.popitem(last=False)
        if outcome.is_accepted:
            self._failures.pop(lane, None)
            self._resting.pop(lane, None)
            return
        self._failures[lane] += 1
        self._resting[lane] = rest_after(self._failures[lane], now=now)

    def _is_room_for(self, lane: str, root: str) -> bool:
        of_account = sum(1 for other in self._on_the_way.values() if other == root)
        if len(self._on_the_way) >= AT_ONCE or of_account >= AT_ONCE_PER_ACCOUNT:
            return False
        unproven = sum(1 for other in self._on_the_way if other not in self._quick)
        return lane in self._quick or unproven < UNPROVEN

    def _forget_rested(self, now: datetime, lanes: Collection[str]) -> None:
        """Forgets lanes that rested or have nothing more to send."""
        for lane in [one for one, until in self._resting.items() if until <= now]:
            del self._resting[lane]
        for lane in [one for one in self._failures if one not in lanes]:
            del self._failures[lane]

    async def _sleep(self, delay: timedelta | None) -> None:
        """Sleeps until something changes or is due."""
        bounded = None if delay is None else min(delay, LONGEST_SLEEP)
        await sleep_unless_woken(self._clock, self._changed, bounded)
        await asyncio.sleep(PAUSE_S)

    def _hear(self, topics: frozenset[str]) -> None:
        if TOPIC in topics or self._is_anyone_listening:
            self._changed.set()
