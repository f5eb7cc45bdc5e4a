"""Payment records are written before any money moves, and change only through the state table.

A step and its effect on the ledger are one transaction: a payment that is `confirmed` is credited too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Select, func, select, update

from sandboxer.identity.signatures.wallets import wallet_of
from sandboxer.kernel.errors import Conflict, NotFound, or_not_found
from sandboxer.kernel.values import brief_value_class, new_id, value_class
from sandboxer.money.ledger import insert_once
from sandboxer.observe.events import record
from sandboxer.payments.lifecycle import CREDITED, IN_FLIGHT, Signal, State, next_state
from sandboxer.payments.tables import after_last, payments
from sandboxer.store.rows import from_row
from sandboxer.store.workers import announce

ACTOR = "system:payments"
MAX_PAGE = 200
# So many payloads that were replaced by others with the same nonce are remembered.
MAX_SUPERSEDED = 5
# Announced to `Store.on_commit` when a payment wants to be looked at.
DUE_TOPIC = "payments.due"


# In a payment's details: the payer's wallet, as its account is filed.
WALLET = "wallet"


class Purpose(StrEnum):
    CREATE = "create"
    EXTEND = "extend"
    TOPUP = "topup"
    KEY = "key"


@brief_value_class
class Networks:
    """A set of networks: these, or all but these."""

    names: frozenset[str]
    are_meant: bool = True

    def has(self, network: Column[Any]) -> ColumnElement[bool]:
        return network.in_(self.names) if self.are_meant else network.not_in(self.names)


@value_class
class Block:
    """The block of its chain that a payment is in."""

    hash: str | None
    height: int | None


@value_class
class Order:
    """A verified payment that is to be recorded."""

    network: str
    payer: str
    nonce: str
    payload_hash: str
    identifier: str | None
    scheme: str
    asset: str
    amount: int
    sats: int
    account: str
    purpose: Purpose
    details: Mapping[str, Any]
    payload: Mapping[str, Any] | None = field(repr=False)
    requirements: Mapping[str, Any] | None = field(repr=False)
    valid_until: datetime | None


@value_class
class Payment(Order):
    """A payment as it is recorded."""

    id: str
    state: State
    reason: str
    txid: str | None
    block: str | None
    created_at: datetime
    updated_at: datetime
    look_at: datetime | None
    looks: int
    # Of its block; None where that is not known.
    height: int | None = None
    # Its credit was taken back, and given again.
    reversed_at: datetime | None = None
    restored_at: datetime | None = None

    @property
    def wallet(self) -> str:
        """The payer's wallet as its account is filed, by its CAIP-10 name."""
        return str(self.details.get(WALLET) or wallet_of(self.payer).caip10)


def open_payment(conn: Connection, order: Order, *, now: datetime, look_at: datetime) -> tuple[Payment, bool]:
    """Return the record of this payment, and whether it is new. Raises Conflict if its nonce or name is used.

    The same payload presented again is the same payment, whatever became of it.
    """
    if (known := find_presented(conn, order.network, order.payer, order.nonce)) is not None:
        if known.payload_hash != order.payload_hash:
            raise nonce_conflict(known)
        return known, False
    refuse_other_payload(conn, order.payer, order.identifier, order.payload_hash)
    row = {
        **_ordered(order),
        "id": new_id("pay"),
        "state": State.QUEUED.value,
        "reason": "verified",
        "created_at": now,
        "updated_at": now,
        "look_at": look_at,
        "looks": 0,
    }
    if not insert_once(conn, payments, row):
        raise _being_taken()
    payment = load(conn, row["id"])
    _tell(conn, payment, now)
    return payment, True


def _being_taken() -> Conflict:
    why, hint = "this payment is being taken by another request", "See what became of it: GET /v1/payments."
    return Conflict(why=why, reason="conflicting_nonce", hint=hint)


def nonce_conflict(known: Payment) -> Conflict:
    return Conflict(
        why="this chain nonce was presented before with another payment",
        reason="conflicting_nonce",
        payment_id=known.id,
        hint="Sign a new payment.",
    )


def redirect(conn: Connection, payment: Payment, order: Order, *, now: datetime) -> Payment:
    """Use a payment that bought nothing yet for another request, or once more for the same."""
    if payment.amount != order.amount:
        # The settler may have seen the first amount, and a chain still may.
        raise Conflict(
            why="this payment was presented before for another amount",
            reason="payment_used",
            payment_id=payment.id,
            hint="Sign a new payment for this one.",
        )
    values = {
        "account": order.account,
        "purpose": order.purpose.value,
        "details": {**order.details, "attempt": payment.details.get("attempt", 0)},
        "updated_at": now,
    }
    conn.execute(
        update(payments)
        .where(payments.c.id == payment.id, payments.c.state == State.QUEUED.value)
        .values(**values)
    )
    return load(conn, payment.id)


def supersede(
    conn: Connection, payment: Payment, order: Order, *, now: datetime, look_at: datetime
) -> Payment:
    """Replace a payment that bought nothing and is not on its chain by another one with the same nonce.

    At most one of the two can ever get on the chain, and the payer means the new one.
    """
    refuse_other_payload(conn, order.payer, order.identifier, order.payload_hash)
    before = [*payment.details.get("superseded", ()), payment.payload_hash]
    values = {
        **_ordered(order),
        "reason": "verified",
        "details": {
            **order.details,
            "attempt": payment.details.get("attempt", 0),
            "superseded": before[-MAX_SUPERSEDED:],
        },
        "txid": None,
        "updated_at": now,
        "look_at": look_at,
        "looks": 0,
    }
    columns = payments.c
    unchanged = (columns.state == State.QUEUED.value, columns.payload_hash == payment.payload_hash)
    done = conn.execute(update(payments).where(columns.id == payment.id, *unchanged).values(**values))
    if done.rowcount != 1:
        raise _being_taken()
    after = load(conn, payment.id)
    _tell(conn, after, now)
    return after


def refuse_other_payload(conn: Connection, payer: str, identifier: str | None, payload_hash: str) -> None:
    """Raise Conflict if the payer used this payment identifier for another payment."""
    if identifier is None:
        return
    query = select(payments).where(payments.c.payer == payer, payments.c.identifier == identifier)
    if (row := conn.execute(query).one_or_none()) is not None and row.payload_hash != payload_hash:
        raise Conflict(
            why="this payment identifier was used for another payment",
            reason="payment_identifier_conflict",
            payment_id=row.id,
            hint="Present the first payment again, or use a new identifier.",
        )


def move(
    conn: Connection,
    payment: Payment,
    signal: Signal,
    *,
    reason: str,
    now: datetime,
    look_at: datetime | None = None,
    txid: str | None = None,
    block: Block | None = None,
    details: Mapping[str, Any] | None = None,
) -> Payment:
    """Move a payment to its next state, unless its state changed meanwhile.

    Raises IllegalTransition, Conflict.
    """
    state = next_state(payment.state, signal)
    # Facts may have been added since it was read, but its state must be the same.
    current = load(conn, payment.id, lock=True)
    if current.state is not payment.state:
        why = f"payment {payment.id} was changed by someone else meanwhile"
        raise Conflict(why=why, hint="See how it is now: GET /v1/payments.")
    values: dict[str, Any] = {
        "state": state.value,
        "reason": reason,
        "updated_at": now,
        "look_at": look_at,
        "txid": txid or current.txid,
        "details": {**current.details, **(details or {})},
        "looks": 0,
        **_placed(current, state, block),
        **_reversed(current, state, now),
    }
    conn.execute(update(payments).where(payments.c.id == payment.id).values(**values))
    after = load(conn, payment.id)
    _tell(conn, after, now)
    return after


def note(
    conn: Connection,
    payment_id: str,
    *,
    now: datetime,
    details: Mapping[str, Any] | None = None,
    look_at: datetime | None = None,
    looked: bool = False,
    txid: str | None = None,
    block: Block | None = None,
) -> Payment:
    """Record facts without changing the state: which sandbox it is for, when to look again."""
    payment = load(conn, payment_id, lock=True)
    values: dict[str, Any] = {"details": {**payment.details, **(details or {})}, "updated_at": now}
    if txid is not None:
        values["txid"] = txid
    if block is not None:
        values |= {"block": block.hash, "height": block.height}
    if looked:
        values |= {"look_at": look_at, "looks": payment.looks + 1}
    conn.execute(update(payments).where(payments.c.id == payment_id).values(**values))
    return load(conn, payment_id)


def find(conn: Connection, payment_id: str, *, lock: bool = False) -> Payment | None:
    query = select(payments).where(payments.c.id == payment_id)
    return _one(conn, query.with_for_update() if lock else query)


def load(conn: Connection, payment_id: str, *, lock: bool = False) -> Payment:
    return or_not_found(find(conn, payment_id, lock=lock), what="payment", id=payment_id)


def find_presented(conn: Connection, network: str, payer: str, nonce: str) -> Payment | None:
    columns = payments.c
    query = select(payments).where(columns.network == network, columns.payer == payer, columns.nonce == nonce)
    return _one(conn, query)


def page(conn: Connection, account: str, *, cursor: str | None, limit: int) -> list[Payment]:
    """An account's payments, newest first; `cursor` is the id of the last one seen."""
    columns = payments.c
    query = select(payments).where(columns.account == account)
    if cursor is not None:
        if (last := find(conn, cursor)) is None or last.account != account:
            raise NotFound(what="payment", id=cursor)
        query = query.where(after_last(payments, last))
    query = query.order_by(columns.created_at.desc(), columns.id.desc()).limit(max(1, min(limit, MAX_PAGE)))
    return _all(conn, query)


def interrupted(conn: Connection) -> list[Payment]:
    """Return the payments that a request was working on when the process ended. For the start only."""
    states = (State.QUEUED.value, State.BROADCASTING.value)
    return _all(conn, select(payments).where(payments.c.state.in_(states)))


def due(conn: Connection, networks: Networks, *, now: datetime, limit: int = 50) -> list[Payment]:
    query = (
        select(payments)
        .where(payments.c.look_at <= now, networks.has(payments.c.network))
        .order_by(payments.c.look_at)
        .limit(limit)
    )
    return _all(conn, query)


def next_look(conn: Connection, networks: Networks) -> datetime | None:
    query = select(func.min(payments.c.look_at)).where(networks.has(payments.c.network))
    earliest: datetime | None = conn.execute(query).scalar()
    return earliest


def unsettled(conn: Connection, payer: str) -> list[Payment]:
    """Return a payer's payments that are not settled but may be, or already count for what is being made."""
    states = [state.value for state in IN_FLIGHT | {State.QUEUED}]
    query = select(payments).where(payments.c.payer == payer, payments.c.state.in_(states))
    return _all(conn, query)


def mistakes(conn: Connection, account: str, *, since: datetime) -> list[tuple[datetime, datetime]]:
    """Return the times in which this account lacked a payment that was taken back by mistake."""
    columns = payments.c
    query = select(columns.reversed_at, columns.restored_at).where(
        columns.account == account, columns.reversed_at.is_not(None), columns.restored_at >= since
    )
    return [(began, ended) for began, ended in conn.execute(query)]


def _ordered(order: Order) -> dict[str, Any]:
    """Return the columns that come from the order, which has a field for each of them."""
    values = {one.name: getattr(order, one.name) for one in fields(Order)}
    return values | {"amount": str(order.amount), "purpose": order.purpose.value}


def _placed(current: Payment, state: State, block: Block | None) -> dict[str, Any]:
    """Return the block of a payment in its new state. One in doubt keeps its block."""
    if state is State.CONFIRMED and block is not None:
        return {"block": block.hash, "height": block.height}
    if state in CREDITED:
        return {"block": current.block, "height": current.height}
    return {"block": None, "height": None}


def _reversed(current: Payment, state: State, now: datetime) -> dict[str, Any]:
    if current.state is State.DOUBTED and state is State.SETTLEMENT_PENDING:
        return {"reversed_at": now, "restored_at": None}
    is_back = state is State.CONFIRMED and current.state is not State.DOUBTED
    return {"restored_at": now} if is_back and current.reversed_at is not None else {}


def _tell(conn: Connection, payment: Payment, now: datetime) -> None:
    if payment.look_at is not None:
        announce(conn, DUE_TOPIC)
    record(
        conn,
        subject=payment.account,
        kind=f"payment.{payment.state.value}",
        actor=ACTOR,
        reason=payment.reason,
        at=now,
        data={
            "payment_id": payment.id,
            "purpose": payment.purpose.value,
            "sats": payment.sats,
            "network": payment.network,
            "asset": payment.asset,
            "amount": str(payment.amount),
            "txid": payment.txid,
            "sandbox_id": payment.details.get("sandbox_id"),
        },
    )


def _one(conn: Connection, query: Select[Any]) -> Payment | None:
    return next(iter(_all(conn, query)), None)


def _all(conn: Connection, query: Select[Any]) -> list[Payment]:
    return [
        from_row(Payment, row, state=State(row.state), purpose=Purpose(row.purpose), amount=int(row.amount))
        for row in conn.execute(query)
    ]
