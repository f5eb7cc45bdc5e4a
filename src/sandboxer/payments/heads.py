"""How high each chain was when it was last looked at: an answer from lower down proves nothing."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from sandboxer.payments.reversal import head_after
from sandboxer.payments.tables import chain_heads


def last_head(conn: Connection, network: str) -> int | None:
    height = conn.execute(select(chain_heads.c.height).where(chain_heads.c.network == network)).scalar()
    return None if height is None else int(height)


def note_head(conn: Connection, network: str, height: int, *, now: datetime) -> None:
    """Remember it if it is the highest. Within a write transaction."""
    row = conn.execute(
        select(chain_heads).where(chain_heads.c.network == network).with_for_update()
    ).one_or_none()
    if row is None:
        conn.execute(insert(chain_heads).values(network=network, height=height, seen_at=now))
        return
    kept = head_after(int(row.height), row.seen_at, height, now=now)
    if kept == height:
        ours = chain_heads.c.network == network
        conn.execute(update(chain_heads).where(ours).values(height=height, seen_at=now))
