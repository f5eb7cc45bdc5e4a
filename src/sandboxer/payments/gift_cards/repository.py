"""Cards and redemptions in the database. Plain functions for use inside a transaction; no decisions.

The tables of gift cards. What is on a card is a ledger account in US cents; no column says it.

The words are nowhere: `lookup` is their hash under a key that the database does not hold.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    Row,
    Table,
    Text,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    text,
    update,
)

from sandboxer.kernel.errors import NotFound
from sandboxer.observe.events import record
from sandboxer.payments.gift_cards.records import (
    Approval,
    Card,
    CardSignal,
    CardState,
    Kind,
    Redemption,
    RedemptionSignal,
    RedemptionState,
    Source,
    next_card_state,
    next_redemption_state,
)
from sandboxer.store.metadata import JsonValue, UtcDateTime, metadata
from sandboxer.store.workers import announce

ACTOR = "system:gift_cards"
# Announced when something may have to be sent or to end.
TOPIC = "gift_cards"
MAX_PAGE = 500
_PENDING = text("state = 'pending_approval'")
_DUE = text("due_at IS NOT NULL")
gift_cards = Table(
    "gift_cards",
    metadata,
    Column("id", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("cents", BigInteger, nullable=False),
    Column("written_off", BigInteger, nullable=False),
    Column("lookup", Text, nullable=True),
    Column("claim_hash", Text, nullable=False),
    Column("account", Text, nullable=True),
    Column("invoice", Text, nullable=True),
    # Whom to ask: {"email": …, "webhook": …}; empty: nobody.
    Column("approval", JsonValue, nullable=False),
    Column("approval_secret", LargeBinary, nullable=True),
    Column("reason", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("paid_at", UtcDateTime, nullable=True),
    Column("shown_at", UtcDateTime, nullable=True),
    Column("revoked_at", UtcDateTime, nullable=True),
    Index("uq_gift_cards_lookup", "lookup", unique=True),
    Index(None, "created_at", "id"),
)
gift_redemptions = Table(
    "gift_redemptions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("card", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("tier", Integer, nullable=True),
    Column("months", Integer, nullable=True),
    Column("cents", BigInteger, nullable=False),
    Column("sats", BigInteger, nullable=True),
    Column("rate", Text, nullable=True),
    Column("account", Text, nullable=False),
    Column("is_new_account", Boolean, nullable=False),
    Column("claim_hash", Text, nullable=True),
    Column("public_key", Text, nullable=True),
    Column("entitled_until", UtcDateTime, nullable=True),
    Column("reason", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=True),
    Index("uq_gift_redemptions_card_request_id", "card", "request_id", unique=True),
    Index(None, "expires_at", sqlite_where=_PENDING, postgresql_where=_PENDING),
)
_c, _r = gift_cards.c, gift_redemptions.c
# Mail still to be sent. The text is made when it is sent: the link that approves is not kept.
gift_mails = Table(
    "gift_mails",
    metadata,
    Column("redemption", Text, primary_key=True),
    Column("address", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("due_at", UtcDateTime, nullable=True),
    Index(None, "due_at", sqlite_where=_DUE, postgresql_where=_DUE),
)


def add_card(conn: Connection, card: Card, *, actor: str) -> None:
    conn.execute(insert(gift_cards).values(**_card_row(card)))
    _tell_card(conn, card, "created", actor, card.created_at)


def drop_unsold(conn: Connection, id: str) -> None:
    """Delete a card for which no invoice could be made; nobody knows of it."""
    conn.execute(
        delete(gift_cards).where(_c.id == id, _c.invoice.is_(None), _c.state == CardState.AWAITING.value)
    )


def change_card(conn: Connection, id: str, **values: Any) -> None:
    conn.execute(update(gift_cards).where(_c.id == id).values(**values))


def load_card(conn: Connection, id: str, *, lock: bool = False) -> Card:
    found = find_card(conn, id, lock=lock)
    if found is None:
        raise NotFound(what="gift card", id=id)
    return found


def find_card(conn: Connection, id: str, *, lock: bool = False) -> Card | None:
    query = select(gift_cards).where(_c.id == id)
    row = conn.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _card(row)


def find_live(conn: Connection, lookup: str, *, lock: bool = False) -> Card | None:
    """The card of these words, if anything can be redeemed from it.

    Unknown, spent, revoked and taken back are one question with one answer: nothing tells them apart.
    """
    query = select(gift_cards).where(_c.lookup == lookup, _c.state == CardState.ACTIVE.value)
    row = conn.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None or not hmac.compare_digest(row.lookup, lookup):
        return None
    return _card(row)


def is_taken(conn: Connection, lookup: str) -> bool:
    return conn.execute(select(_c.id).where(_c.lookup == lookup)).first() is not None


def page(conn: Connection, *, state: CardState | None, after: str | None, limit: int) -> list[Card]:
    """Newest first; `after` is the id of the last one seen."""
    query = select(gift_cards).order_by(_c.created_at.desc(), _c.id.desc())
    if state is not None:
        query = query.where(_c.state == state.value)
    if after is not None:
        last = load_card(conn, after)
        older = or_(_c.created_at < last.created_at, and_(_c.created_at == last.created_at, _c.id < last.id))
        query = query.where(older)
    return [_card(row) for row in conn.execute(query.limit(max(1, min(limit, MAX_PAGE))))]


def move_card(
    conn: Connection, card: Card, signal: CardSignal, *, actor: str, now: datetime, **values: Any
) -> Card:
    """Move a card to another state, and record the event."""
    state = next_card_state(card.state, signal)
    moved = replace(card, state=state, updated_at=now, **values)
    change_card(conn, card.id, state=state.value, updated_at=now, **values)
    _tell_card(conn, moved, signal.value, actor, now)
    return moved


def add_redemption(conn: Connection, redemption: Redemption) -> None:
    conn.execute(insert(gift_redemptions).values(**_redemption_row(redemption)))
    _tell_redemption(conn, redemption, "asked", ACTOR, redemption.created_at)


def move_redemption(
    conn: Connection,
    redemption: Redemption,
    signal: RedemptionSignal,
    *,
    actor: str,
    now: datetime,
    **values: Any,
) -> Redemption:
    state = next_redemption_state(redemption.state, signal)
    moved = replace(redemption, state=state, updated_at=now, **values)
    save_redemption(conn, moved)
    _tell_redemption(conn, moved, signal.value, actor, now)
    return moved


def save_redemption(conn: Connection, redemption: Redemption) -> None:
    row = _redemption_row(redemption)
    conn.execute(update(gift_redemptions).where(_r.id == redemption.id).values(**row))


def load_redemption(conn: Connection, id: str, *, lock: bool = False) -> Redemption:
    query = select(gift_redemptions).where(_r.id == id)
    row = conn.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise NotFound(what="redemption", id=id)
    return _redemption(row)


def find_asked(conn: Connection, lookup: str, request_id: str) -> Redemption | None:
    """The redemption of this card by this request id, also of a card that is spent by now."""
    query = (
        select(gift_redemptions)
        .join(gift_cards, _c.id == _r.card)
        .where(_c.lookup == lookup, _r.request_id == request_id)
    )
    row = conn.execute(query).one_or_none()
    return None if row is None else _redemption(row)


def pending_of(conn: Connection, card: str) -> list[Redemption]:
    query = select(gift_redemptions).where(
        _r.card == card, _r.state == RedemptionState.PENDING_APPROVAL.value
    )
    return [_redemption(row) for row in conn.execute(query.order_by(_r.created_at, _r.id))]


def overdue(conn: Connection, *, now: datetime, limit: int = 100) -> list[str]:
    waits = _r.state == RedemptionState.PENDING_APPROVAL.value
    query = select(_r.id).where(waits, _r.expires_at <= now).order_by(_r.expires_at).limit(limit)
    return list(conn.execute(query).scalars())


def next_overdue(conn: Connection) -> datetime | None:
    waits = _r.state == RedemptionState.PENDING_APPROVAL.value
    found = conn.execute(select(func.min(_r.expires_at)).where(waits)).scalar()
    assert found is None or isinstance(found, datetime)
    return found


def asked_since(conn: Connection, card: str, since: datetime) -> int:
    query = select(func.count()).where(_r.card == card, _r.created_at > since, _r.expires_at.is_not(None))
    return int(conn.execute(query).scalar_one())


def asked_today(conn: Connection, card: str, *, now: datetime) -> int:
    return asked_since(conn, card, now - timedelta(days=1))


def _tell_card(conn: Connection, card: Card, reason: str, actor: str, now: datetime) -> None:
    announce(conn, TOPIC)
    data = {"state": card.state.value, "cents": card.cents, "source": card.source.value}
    kind = f"gift_card.{card.state.value}"
    record(conn, subject=card.id, kind=kind, actor=actor, reason=reason, at=now, data=data)


def _tell_redemption(conn: Connection, one: Redemption, reason: str, actor: str, now: datetime) -> None:
    announce(conn, TOPIC)
    data: Mapping[str, Any] = {
        "redemption": one.id,
        "state": one.state.value,
        "kind": one.kind.value,
        "cents": one.cents,
        "sats": one.sats,
        "tier": one.tier,
    }
    kind = f"gift_redemption.{one.state.value}"
    record(conn, subject=one.card, kind=kind, actor=actor, reason=reason, at=now, data=data)


def _card_row(card: Card) -> dict[str, Any]:
    asks = card.approval
    approval = {} if asks is None else {"email": asks.email, "webhook": asks.webhook}
    return {
        "id": card.id,
        "state": card.state.value,
        "source": card.source.value,
        "cents": card.cents,
        "written_off": card.written_off,
        "lookup": card.lookup,
        "claim_hash": card.claim_hash,
        "account": card.account,
        "invoice": card.invoice,
        "approval": approval,
        "approval_secret": card.approval_secret,
        "reason": card.reason,
        "created_at": card.created_at,
        "updated_at": card.updated_at,
        "paid_at": card.paid_at,
        "shown_at": card.shown_at,
        "revoked_at": card.revoked_at,
    }


def _card(row: Row[Any]) -> Card:
    values = row._asdict()
    asks = values["approval"]
    return Card(
        **values
        | {
            "state": CardState(values["state"]),
            "source": Source(values["source"]),
            "approval": Approval(**asks) if asks else None,
        }
    )


def _redemption_row(one: Redemption) -> dict[str, Any]:
    values = {name: getattr(one, name) for name in Redemption.__dataclass_fields__}
    return values | {"state": one.state.value, "kind": one.kind.value}


def _redemption(row: Row[Any]) -> Redemption:
    values = row._asdict()
    return Redemption(**values | {"state": RedemptionState(values["state"]), "kind": Kind(values["kind"])})
