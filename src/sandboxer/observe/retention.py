"""Removes events after a while. The ledger and the audit log are kept for ever."""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection, delete, select

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Unavailable
from sandboxer.observe.events import events
from sandboxer.observe.webhooks.endpoints import is_anyone_listening
from sandboxer.observe.webhooks.outbox import EventFeed
from sandboxer.observe.webhooks.tables import webhook_cursors
from sandboxer.store.engine import Store

log = logging.getLogger(__name__)
PRUNE_EVERY = timedelta(hours=1)
AT_ONCE = 500


def prune(conn: Connection, *, before: datetime, spared: Collection[str] = ()) -> bool:
    """Removes some of the oldest events, never those of `spared` subjects. Returns True if there may be more.

    What webhooks have not read yet stays, however old. Ids grow with time: the oldest come first.
    """
    query = select(events.c.id, events.c.at).where(events.c.subject.not_in(spared)).order_by(events.c.id)
    if (unread := _first_unread(conn)) is not None:
        query = query.where(events.c.id < unread)
    rows = conn.execute(query.limit(AT_ONCE)).all()
    if old := [row.id for row in rows if row.at < before]:
        conn.execute(delete(events).where(events.c.id.in_(old)))
    return len(old) == AT_ONCE


async def keep_events_pruned(
    store: Store, clock: Clock, *, kept: timedelta, spared: Collection[str] = ()
) -> None:
    """Removes old events again and again, until cancelled."""
    while True:
        before = clock.now() - kept
        try:
            while await store.write(partial(prune, before=before, spared=spared)):
                pass
        except Unavailable as error:
            log.warning("old events are kept until the database is back: %s", error)
        await clock.sleep(PRUNE_EVERY)


def _first_unread(conn: Connection) -> int | None:
    """Returns the first event that webhooks have not read. None if nobody listens: a new listener hears
    only new events.
    """
    if not is_anyone_listening(conn):
        return None
    position = select(webhook_cursors.c.position).where(webhook_cursors.c.feed == EventFeed.name)
    return int(conn.execute(position).scalar() or 0) + 1
