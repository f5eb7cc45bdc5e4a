"""Mails still to be sent: rows made in the transaction of what they ask about, tried again like webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from sandboxer.money.ledger import insert_once
from sandboxer.observe.webhooks.states import DeliveryState, Signal, after_failure, next_state
from sandboxer.payments.gift_cards import book
from sandboxer.payments.gift_cards.records import Redemption
from sandboxer.payments.gift_cards.states import RedemptionState
from sandboxer.payments.gift_cards.tables import gift_mails
from sandboxer.store.workers import announce

_m = gift_mails.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    redemption: str
    address: str
    state: DeliveryState
    tries: int
    reason: str
    created_at: datetime
    due_at: datetime | None


def put(conn: Connection, redemption: str, address: str, *, now: datetime) -> None:
    row = {
        "redemption": redemption,
        "address": address,
        "state": DeliveryState.PENDING.value,
        "tries": 0,
        "reason": "",
        "created_at": now,
        "due_at": now,
    }
    insert_once(conn, gift_mails, row)
    announce(conn, book.TOPIC)


def first_due(conn: Connection, *, now: datetime) -> tuple[Mail, Redemption] | None:
    query = select(gift_mails).where(_m.due_at <= now).order_by(_m.due_at, _m.redemption).limit(1)
    row = conn.execute(query).one_or_none()
    return None if row is None else (_mail(row), book.load_redemption(conn, row.redemption))


def next_due(conn: Connection) -> datetime | None:
    found = conn.execute(select(func.min(_m.due_at))).scalar()
    assert found is None or isinstance(found, datetime)
    return found


def find(conn: Connection, redemption: str) -> Mail | None:
    row = conn.execute(select(gift_mails).where(_m.redemption == redemption)).one_or_none()
    return None if row is None else _mail(row)


def is_wanted(one: Redemption, *, now: datetime) -> bool:
    """Nobody is asked about what is decided already."""
    waits = one.state is RedemptionState.PENDING_APPROVAL
    return waits and one.expires_at is not None and one.expires_at > now


def conclude(
    conn: Connection, mail: Mail, why_not: str | None, *, is_final: bool, now: datetime, chance: float
) -> None:
    """Write down how a try went."""
    due = None
    if why_not is None:
        state = next_state(mail.state, Signal.ACCEPTED)
    else:
        verdict = after_failure(mail.state, tries=mail.tries + 1, now=now, chance=chance, is_final=is_final)
        state, due = verdict.state, verdict.due_at
    values = {"state": state.value, "tries": mail.tries + 1, "reason": why_not or "", "due_at": due}
    conn.execute(update(gift_mails).where(_m.redemption == mail.redemption).values(**values))


def withdraw(conn: Connection, mail: Mail) -> None:
    state = next_state(mail.state, Signal.WITHDRAWN)
    values = {"state": state.value, "reason": "no longer asked", "due_at": None}
    conn.execute(update(gift_mails).where(_m.redemption == mail.redemption).values(**values))


def _mail(row: Row[Any]) -> Mail:
    values = row._asdict()
    return Mail(**values | {"state": DeliveryState(values["state"])})
