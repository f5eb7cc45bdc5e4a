"""Cards and redemptions in the database. Plain functions for use inside a transaction; no decisions."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from sandboxer.observe.events import record
from sandboxer.payments.gift_cards.records import (
    Approval,
    Card,
    CardSignal,
    CardState,
    Redemption,
    RedemptionSignal,
    RedemptionState,
    Source,
    next_card_state,
    next_redemption_state,
)
from sandboxer.payments.invoices.records import Kind
from sandboxer.payments.tables import after_last, gift_cards, gift_redemptions, load_row
from sandboxer.store.rows import from_row
from sandboxer.store.workers import announce

ACTOR = "system:gift_cards"
# Announced when something may have to be sent or to end.
TOPIC = "gift_cards"
MAX_PAGE = 500
_c, _r = gift_cards.c, gift_redemptions.c


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
    return _card(load_row(conn, gift_cards, id, what="gift card", lock=lock))


def find_card(conn: Connection, id: str, *, lock: bool = False) -> Card | None:
    row = _row(conn, select(gift_cards).where(_c.id == id), lock)
    return None if row is None else _card(row)


def find_live(conn: Connection, lookup: str, *, lock: bool = False) -> Card | None:
    """The card of these words, if anything can be redeemed from it.

    Unknown, spent, revoked and taken back are one question with one answer: nothing tells them apart.
    """
    query = select(gift_cards).where(_c.lookup == lookup, _c.state == CardState.ACTIVE.value)
    if (row := _row(conn, query, lock)) is None or not hmac.compare_digest(row.lookup, lookup):
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
        query = query.where(after_last(gift_cards, load_card(conn, after)))
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
    return _redemption(load_row(conn, gift_redemptions, id, what="redemption", lock=lock))


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


def asked_today(conn: Connection, card: str, *, now: datetime) -> int:
    since = now - timedelta(days=1)
    query = select(func.count()).where(_r.card == card, _r.created_at > since, _r.expires_at.is_not(None))
    return int(conn.execute(query).scalar_one())


def _row(conn: Connection, query: Select[Any], lock: bool) -> Row[Any] | None:
    return conn.execute(query.with_for_update() if lock else query).one_or_none()


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
    approval = Approval(**row.approval) if row.approval else None
    return from_row(Card, row, state=CardState(row.state), source=Source(row.source), approval=approval)


def _redemption_row(one: Redemption) -> dict[str, Any]:
    values = {name: getattr(one, name) for name in Redemption.__dataclass_fields__}
    return values | {"state": one.state.value, "kind": one.kind.value}


def _redemption(row: Row[Any]) -> Redemption:
    return from_row(Redemption, row, state=RedemptionState(row.state), kind=Kind(row.kind))
