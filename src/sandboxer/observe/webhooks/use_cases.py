"""Manages endpoints with their secrets, enqueues one-shot messages and runs the delivery worker behind both.

Webhooks(...).delivering() -> Webhooks
webhooks.enqueue(conn, account=, kind=, url=, payload=, id=, now=, secret=None)   inside a transaction
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Connection

from sandboxer.kernel.addresses import Network
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.tasks import own_tasks
from sandboxer.kernel.values import new_id
from sandboxer.observe.webhooks import carrier as signing
from sandboxer.observe.webhooks import endpoints, outbox
from sandboxer.observe.webhooks.carrier import TIMEOUT_S, Carrier
from sandboxer.observe.webhooks.delivery_worker import DeliveryWorker
from sandboxer.observe.webhooks.endpoints import OVERLAP, Endpoint, Target, once_id, parse_target
from sandboxer.observe.webhooks.outbox import Above, Attempt, Delivery, Feed, lane_of
from sandboxer.store.engine import Store

TEST_KIND = "webhook.test"
# A test waits for its own try, and for one that was on its way before.
TEST_WAIT_S = 2 * TIMEOUT_S


def _none_above(conn: Connection, accounts: Collection[str]) -> Mapping[str, Sequence[str]]:
    return {}


class Sealer(Protocol):
    def close(self, secret: bytes, *, context: str) -> bytes: ...

    def open(self, sealed: bytes, *, context: str) -> bytes: ...


class Webhooks:
    """`above` gives the accounts above each account; `never` are networks that no webhook reaches."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        seal: Sealer,
        feeds: Sequence[Feed],
        *,
        allow_private: bool,
        never: Sequence[Network] = (),
        above: Above = _none_above,
    ) -> None:
        self._store = store
        self._clock = clock
        self._seal = seal
        self._feeds = tuple(feeds)
        self._allow_private = allow_private
        self.carrier = Carrier(allow_private=allow_private, never=never)
        self.delivery_worker = DeliveryWorker(
            store, clock, self.carrier, self._feeds, self._secrets_of, above
        )

    @asynccontextmanager
    async def delivering(self) -> AsyncIterator[Webhooks]:
        """Yields them with their delivery worker running."""
        try:
            async with own_tasks() as tasks:
                tasks.start(self.delivery_worker.run(), name="webhooks")
                yield self
        finally:
            await self.carrier.close()

    def check_url(self, url: str) -> Target:
        """Raises InvalidRequest for a URL that no webhook may go to: ask before accepting one."""
        return parse_target(url, allow_private=self._allow_private)

    def enqueue(
        self,
        conn: Connection,
        *,
        account: str,
        kind: str,
        url: str,
        payload: Mapping[str, Any],
        id: str,
        now: datetime,
        secret: str | None = None,
    ) -> str:
        """Enqueues one message to a URL of the caller's, in the transaction of its event. Returns the
        delivery's id.

        The same `id` is sent as one message (it is the `webhook-id`). Signed with `secret` (whsec_…), or with
        the account's secret for one-shots if it made one; without either it goes unsigned.
        """
        target = self.check_url(url)
        sealed = None if secret is None else self._close(secret, id)
        made = outbox.put(
            conn,
            endpoint=once_id(account),
            account=account,
            lane=lane_of(account, f"{target.host}:{target.port}"),
            message=id,
            kind=kind,
            body=outbox.body_of(id=id, kind=kind, account=account, at=now, data=payload),
            now=now,
            url=url,
            secret=sealed,
        )
        return made.id

    async def create(
        self, account: str, url: str, *, kinds: Sequence[str], hears_all: bool, actor: str
    ) -> tuple[Endpoint, str]:
        """Creates an endpoint. Returns it and its secret, which is shown only once."""
        self.check_url(url)
        now, id, secret = self._clock.now(), new_id("whk"), signing.new_secret()
        made = Endpoint(
            id=id,
            account=account,
            url=url,
            kinds=tuple(kinds),
            hears_all=hears_all,
            enabled=True,
            disabled_reason="",
            secret=self._close(secret, id),
            old_secret=None,
            old_secret_until=None,
            created_at=now,
        )

        def write(conn: Connection) -> None:
            self._begin_listening(conn, now)
            endpoints.add(conn, made, actor=actor)

        await self._store.write(write)
        return made, secret

    async def hear_once(self, account: str, url: str, *, kinds: Sequence[str], actor: str) -> None:
        """Lets a URL hear these kinds of every account, unless an endpoint does so already."""
        known = await self._store.read(lambda conn: endpoints.of_account(conn, account))
        if not any(one.url == url and set(kinds) <= set(one.kinds) for one in known):
            await self.create(account, url, kinds=kinds, hears_all=True, actor=actor)

    async def change(
        self,
        account: str,
        id: str,
        *,
        actor: str,
        url: str | None = None,
        kinds: Sequence[str] | None = None,
        enabled: bool | None = None,
    ) -> Endpoint:
        if url is not None:
            self.check_url(url)
        now = self._clock.now()
        wanted = {"url": url, "kinds": None if kinds is None else list(kinds), "enabled": enabled}
        changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
        if enabled is not None:
            changes["disabled_reason"] = "" if enabled else "asked"

        def write(conn: Connection) -> Endpoint:
            found = endpoints.load(conn, account, id)
            if enabled and not found.enabled:
                self._begin_listening(conn, now)
            if enabled is False:
                outbox.withdraw(conn, id, reason="the webhook was switched off", now=now)
            return endpoints.change(conn, found, changes, actor=actor, reason="asked", now=now)

        return await self._store.write(write)

    async def remove(self, account: str, id: str, *, actor: str) -> None:
        now = self._clock.now()

        def write(conn: Connection) -> None:
            found = endpoints.load(conn, account, id)
            outbox.withdraw(conn, id, reason="the webhook was removed", now=now)
            endpoints.remove(conn, found, actor=actor, now=now)

        await self._store.write(write)

    async def rotate(
        self, account: str, id: str, *, actor: str, overlap: timedelta = OVERLAP
    ) -> tuple[Endpoint, str]:
        """Makes a new secret, shown only once. The old one signs beside it until the overlap is over."""
        now, secret = self._clock.now(), signing.new_secret()
        sealed = self._close(secret, id)

        def write(conn: Connection) -> Endpoint:
            if id == once_id(account):
                return endpoints.put_once_secret(conn, account, sealed, now=now, overlap=overlap)
            found = endpoints.load(conn, account, id)
            changes = endpoints.rotation(found, sealed, now=now, overlap=overlap)
            return endpoints.change(conn, found, changes, actor=actor, reason="rotated", now=now)

        return await self._store.write(write), secret

    async def test(self, account: str, id: str) -> Delivery:
        """Sends a test message now, and returns how that went."""
        now, message = self._clock.now(), new_id("tst")

        def write(conn: Connection) -> Delivery:
            found = endpoints.load(conn, account, id)
            body = outbox.body_of(id=message, kind=TEST_KIND, account=account, at=now, data={"webhook": id})
            return outbox.put(
                conn,
                endpoint=id,
                account=account,
                lane=lane_of(account, found.id),
                message=message,
                kind=TEST_KIND,
                body=body,
                now=now,
            )

        return await self._sent(await self._store.write(write))

    async def redeliver(self, account: str, id: str, delivery_id: str) -> Delivery:
        now = self._clock.now()

        def write(conn: Connection) -> Delivery:
            if id != once_id(account):
                endpoints.load(conn, account, id)
            return outbox.redeliver(conn, id, delivery_id, now=now)

        return await self._sent(await self._store.write(write))

    async def of_account(self, account: str) -> list[Endpoint]:
        return await self._store.read(lambda conn: endpoints.of_account(conn, account))

    async def get(self, account: str, id: str) -> Endpoint:
        """Raises NotFound."""
        return await self._store.read(lambda conn: endpoints.load(conn, account, id))

    async def deliveries(
        self, account: str, id: str, *, before: int | None, limit: int, state: str | None
    ) -> tuple[Sequence[Delivery], Mapping[str, Sequence[Attempt]]]:
        """Returns deliveries, the newest first, with the attempts at each."""

        def read(conn: Connection) -> tuple[Sequence[Delivery], Mapping[str, Sequence[Attempt]]]:
            if id != once_id(account):
                endpoints.load(conn, account, id)
            found = outbox.page(conn, id, before=before, limit=limit, state=state)
            return found, outbox.attempts_of(conn, [one.id for one in found])

        return await self._store.read(read)

    async def attempts(self, delivery: Delivery) -> Sequence[Attempt]:
        found = await self._store.read(lambda conn: outbox.attempts_of(conn, [delivery.id]))
        return found[delivery.id]

    async def _sent(self, delivery: Delivery) -> Delivery:
        await self.delivery_worker.attempted(delivery, within=TEST_WAIT_S)
        found = await self._store.read(lambda conn: outbox.find(conn, delivery.id))
        return found or replace(delivery)

    def _begin_listening(self, conn: Connection, now: datetime) -> None:
        if not endpoints.is_anyone_listening(conn):
            outbox.start_feeds(conn, self._feeds, now=now)

    def _secrets_of(self, delivery: Delivery, endpoint: Endpoint | None, now: datetime) -> list[str]:
        if delivery.secret is not None:
            return [self._open(delivery.secret, delivery.message)]
        if endpoint is None:
            return []
        return [self._open(sealed, endpoint.id) for sealed in endpoint.secrets_at(now)]

    def _close(self, secret: str, id: str) -> bytes:
        signing.key_of(secret)
        return self._seal.close(secret.encode(), context=f"webhook:{id}")

    def _open(self, sealed: bytes, id: str) -> str:
        return self._seal.open(sealed, context=f"webhook:{id}").decode()
