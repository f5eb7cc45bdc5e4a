from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, func, select, update

from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import SystemClock
from sandboxer.observe import retention
from sandboxer.observe.events import events, record
from sandboxer.observe.webhooks.outbox import EventFeed
from sandboxer.observe.webhooks.tables import webhook_cursors
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.store.engine import Store

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def happened(conn: Connection) -> None:
    """One a day for ten days, and a checkpoint of the audit log as old as the first."""
    record(conn, subject="audit", kind="audit.checkpoint", actor="t", reason="r", at=NOW - 10 * DAY)
    for age in range(10, 0, -1):
        record(conn, subject=f"sbx_{age}", kind="x", actor="t", reason="r", at=NOW - age * DAY)


async def subjects(store: Store) -> list[str]:
    query = select(events.c.subject).order_by(events.c.id)
    return await store.read(lambda conn: list(conn.execute(query).scalars()))


async def test_old_events_go_and_the_audit_log_s_witnesses_stay(store: Store) -> None:
    await store.write(happened)

    def prune(conn: Connection) -> bool:
        return retention.prune(conn, before=NOW - 3 * DAY, spared=("audit",))

    assert await store.write(prune) is False
    assert await subjects(store) == ["audit", "sbx_3", "sbx_2", "sbx_1"]
    await store.write(happened)
    newest = select(func.max(events.c.id))
    assert await store.read(lambda conn: conn.execute(newest).scalar()) == 22, "an id is never given twice"


async def test_what_webhooks_have_not_read_stays_however_old_it_is(store: Store) -> None:
    async with Webhooks(
        store, SystemClock(), Seal(b"k" * 32), [EventFeed(lambda conn, subjects: {})], allow_private=True
    ).delivering() as webhooks:
        await webhooks.create("acme", "http://127.0.0.1:1/", kinds=["*"], hears_all=False, actor="t")
    await store.write(happened)
    ids = await store.read(
        lambda conn: list(conn.execute(select(events.c.id).order_by(events.c.id)).scalars())
    )
    await store.write(lambda conn: conn.execute(update(webhook_cursors).values(position=ids[4])))
    await store.write(lambda conn: retention.prune(conn, before=datetime.now(UTC) + DAY))
    left = await store.read(lambda conn: list(conn.execute(select(events.c.id)).scalars()))
    assert sorted(left) == ids[5:]
