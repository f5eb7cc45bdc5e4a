"""A given quote promises a price to one account for a while; one sandbox may use it.

asked ──named by a create or extend──> used ──its sandbox is gone──> let go, later pruned
  └──────nobody came in time─────────> expired, later pruned
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select, update

from sandboxer.kernel.errors import Conflict, QuoteUnusable, or_not_found
from sandboxer.kernel.values import value_class
from sandboxer.money.pricing import Quote, RateCard, Size
from sandboxer.money.tables import quotes
from sandboxer.store.rows import from_row

# For so long an expired quote is told apart from an unknown one.
REMEMBERED = timedelta(days=1)
# Stands in `used_by` once the sandbox that used the quote is gone.
_GONE = ""
# How many open quotes one account may have.
MOST = 100


@value_class
class GivenQuote:
    id: str
    account: str
    quote: Quote
    # The sandbox that took it.
    used_by: str | None = None


def give(conn: Connection, given: GivenQuote) -> None:
    """Write the quote, and delete long expired ones that no sandbox uses. Raises Conflict for too many.

    A quote that a sandbox uses stays as long as that sandbox: it also promises the price of its egress.
    """
    quote = given.quote
    nobodys = or_(quotes.c.used_by.is_(None), quotes.c.used_by == _GONE)
    conn.execute(delete(quotes).where(quotes.c.expires_at < quote.quoted_at - REMEMBERED, nobodys))
    _make_room(conn, given.account, quote.quoted_at)
    conn.execute(
        insert(quotes).values(
            id=given.id,
            account=given.account,
            profile=quote.profile,
            vcpu_thousandths=quote.size.vcpu_thousandths,
            memory_mb=quote.size.memory_mb,
            disk_mb=quote.size.disk_mb,
            running_msats=quote.card.running,
            frozen_msats=quote.card.frozen,
            stored_msats=quote.card.stored,
            egress_gb_msats=quote.egress_gb_msats,
            duration_s=quote.duration // timedelta(seconds=1),
            sats=quote.sats,
            quoted_at=quote.quoted_at,
            expires_at=quote.expires_at,
        )
    )


def find(conn: Connection, quote_id: str, account: str) -> GivenQuote:
    """Load an account's quote. Raises NotFound, for another account's quote as well."""
    query = select(quotes).where(quotes.c.id == quote_id, quotes.c.account == account)
    row = or_not_found(
        conn.execute(query).one_or_none(), what="quote", id=quote_id, hint="Ask for one: POST /v1/quotes."
    )
    return _from_row(row)


def check(given: GivenQuote, *, profile: str, size: Size, now: datetime) -> None:
    """Check that a sandbox of this profile and size may use the quote now. Pure. Raises QuoteUnusable."""
    quote = given.quote
    if not quote.is_open(now=now):
        raise _unusable(given, "expired", f"it held until {quote.expires_at.isoformat()}")
    if profile != quote.profile:
        raise _unusable(given, "mismatch", f"it is for {quote.profile}, not for {profile}")
    if size != quote.size:
        raise _unusable(given, "mismatch", f"it is for {_words(quote.size)}, not for {_words(size)}")


def take(
    conn: Connection, given: GivenQuote, sandbox_id: str, *, profile: str, size: Size, now: datetime
) -> None:
    """Mark the quote as used by this sandbox, after checking it again. A quote is used once.

    If the sandbox cannot be made, `free` makes the quote usable again. Raises QuoteUnusable.
    """
    check(given, profile=profile, size=size, now=now)
    unused = update(quotes).where(quotes.c.id == given.id, quotes.c.used_by.is_(None))
    if conn.execute(unused.values(used_by=sandbox_id)).rowcount != 1:
        raise _unusable(given, "used", "another sandbox has it already")


def free(conn: Connection, sandbox_id: str, quote_id: str) -> None:
    """Make the quote usable again, because the sandbox that used it could not be made."""
    taken = update(quotes).where(quotes.c.id == quote_id, quotes.c.used_by == sandbox_id)
    conn.execute(taken.values(used_by=None))


def let_go(conn: Connection, sandbox_id: str, quote_id: str) -> None:
    """Retire the quote, because the sandbox that used it is gone or uses another. Nobody may use it again."""
    taken = update(quotes).where(quotes.c.id == quote_id, quotes.c.used_by == sandbox_id)
    conn.execute(taken.values(used_by=_GONE))


def _make_room(conn: Connection, account: str, now: datetime) -> None:
    """Keep the number of an account's open quotes bounded; expired ones are deleted first."""
    unused = (quotes.c.account == account, quotes.c.used_by.is_(None))
    count = select(func.count()).where(*unused)
    if (conn.execute(count).scalar() or 0) < MOST:
        return
    conn.execute(delete(quotes).where(*unused, quotes.c.expires_at <= now))
    if (conn.execute(count).scalar() or 0) >= MOST:
        raise Conflict(
            why=f"{MOST} quotes of this account are open",
            reason="too_many_quotes",
            limit=MOST,
            hint="Use one of them (POST /v1/sandboxes takes its id), or wait until some have expired.",
        )


def _unusable(given: GivenQuote, reason: str, why: str) -> QuoteUnusable:
    return QuoteUnusable(id=given.id, why=why, reason=f"quote_{reason}", quote_id=given.id)


def _words(size: Size) -> str:
    cpus = f"{size.vcpu_thousandths // 1000}.{size.vcpu_thousandths % 1000:03d}".rstrip("0").rstrip(".")
    return f"{cpus} CPUs, {size.memory_mb} MB of memory and {size.disk_mb} MB of disk"


def _from_row(row: Row[Any]) -> GivenQuote:
    card = RateCard(running=row.running_msats, frozen=row.frozen_msats, stored=row.stored_msats)
    lasts = timedelta(seconds=row.duration_s)
    quote = from_row(Quote, row, size=from_row(Size, row), card=card, duration=lasts)
    return from_row(GivenQuote, row, quote=quote)
