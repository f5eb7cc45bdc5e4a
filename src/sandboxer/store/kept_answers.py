"""Limits how much of the database the answers kept for Idempotency-Keys take, for one owner and for all.

A run of code costs a fraction of a sat and answers with megabytes, and whoever repeats keys of his own could
fill the host's disk within minutes. So an owner's newest answers are kept as far as they go together, and the
others are dropped: that they were given is still known, and nothing is done twice. When all together are too
much, those who keep most keep less; nobody loses a small answer to somebody else's large ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from sqlalchemy import Connection, func, select

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.values import value_class
from sandboxer.store import idempotency as keys
from sandboxer.store.engine import Store
from sandboxer.store.idempotency import Fresh, idempotency

log = logging.getLogger(__name__)
LOOK_EVERY = timedelta(minutes=1)
# Smaller ones are weighed together, at the next look.
_LARGE = 64 * 1024


@value_class
class AnswerPolicy:
    bytes_per_owner: int = 64 << 20
    bytes_in_all: int = 1 << 30


ANSWERS = AnswerPolicy()


def finish(
    conn: Connection,
    fresh: Fresh,
    *,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    policy: AnswerPolicy = ANSWERS,
) -> bool:
    """Does the same as `idempotency.finish`. A large answer replaces older ones in the same transaction."""
    is_kept = keys.finish(conn, fresh, status=status, headers=headers, body=body)
    if len(body) >= _LARGE:
        drop_beyond(conn, keys.owner_of(fresh.scope), policy.bytes_per_owner)
    return is_kept


def allowed(held: Mapping[str, int], policy: AnswerPolicy) -> int:
    """Returns the most bytes that one owner may keep so that all together stay within the bound. Pure.

    Who keeps less than an even share is not asked for anything.
    """
    left, most = policy.bytes_in_all, policy.bytes_per_owner
    sizes = sorted(min(size, most) for size in held.values())
    for number, size in enumerate(sizes):
        share = left // (len(sizes) - number)
        if size > share:
            return share
        left -= size
    return most


def held_bytes(conn: Connection) -> dict[str, int]:
    columns = idempotency.c
    total = func.sum(columns.bytes)
    query = select(columns.owner, total).group_by(columns.owner).having(total > 0)
    return {owner: int(size) for owner, size in conn.execute(query)}


def drop_beyond(conn: Connection, owner: str, most: int) -> int:
    """Keeps the newest answers of one owner that fit together, and returns how many were dropped."""
    columns = idempotency.c
    mine = select(columns.scope, columns.key, columns.bytes).where(columns.owner == owner, columns.bytes > 0)
    left, old = most, []
    for scope, key, size in conn.execute(mine.order_by(columns.begun_at.desc())):
        left -= size
        if left < 0:
            old.append((scope, key))
    keys.drop(conn, old)
    return len(old)


async def keep_within(store: Store, policy: AnswerPolicy = ANSWERS) -> int:
    """Checks all owners once, and returns how many answers were dropped."""
    held, dropped = await store.read(held_bytes), 0
    most = allowed(held, policy)
    for owner in (owner for owner, size in held.items() if size > most):
        dropped += await store.write(partial(drop_beyond, owner=owner, most=most))
    return dropped


async def keep_pruned(store: Store, clock: Clock) -> None:
    """Removes expired answers and those beyond the bound, again and again. Cancel it to stop."""
    while True:
        try:
            while await store.write(partial(keys.prune, now=clock.now())):
                pass
            if dropped := await keep_within(store):
                log.info("%d answers kept for Idempotency-Keys were dropped: there were too many", dropped)
        except Exception:
            # An outermost loop: what could not be removed now is removed the next time.
            log.exception("expired or too many answers of idempotency keys could not be removed")
        await clock.sleep(LOOK_EVERY)
