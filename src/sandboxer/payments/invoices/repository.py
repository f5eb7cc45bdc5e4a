"""Invoices in the database. Plain functions for use inside a transaction; no decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from sandboxer.money.ledger import insert_once
from sandboxer.observe.events import record
from sandboxer.payments.invoices.records import (
    OPEN,
    Buys,
    Invoice,
    Output,
    Price,
    Refund,
    RefundState,
    Settled,
    State,
)
from sandboxer.payments.tables import (
    after_last,
    invoice_chains,
    invoice_outputs,
    invoice_steps,
    invoices,
    load_row,
    refunds,
)
from sandboxer.store.rows import from_row
from sandboxer.store.workers import announce

ACTOR = "system:invoices"
MAX_PAGE = 500


def topic(asset: str) -> str:
    """Announced when there is a new address to look at."""
    return f"invoices:{asset}"


def refunds_topic(asset: str) -> str:
    """Announced when something has to go back."""
    return f"refunds:{asset}"


def take_index(conn: Connection, chain: str) -> int:
    """Return the next address index of a chain; it is never given again."""
    insert_once(conn, invoice_chains, {"chain": chain, "next_index": 0, "tip": 0})
    query = select(invoice_chains.c.next_index).where(invoice_chains.c.chain == chain).with_for_update()
    index = int(conn.execute(query).scalar_one())
    of_chain = update(invoice_chains).where(invoice_chains.c.chain == chain)
    conn.execute(of_chain.values(next_index=index + 1))
    return index


def last_look(conn: Connection, chain: str) -> tuple[int, datetime | None]:
    """Return the last recorded height of the chain, and when it was seen."""
    query = select(invoice_chains.c.tip, invoice_chains.c.looked_at).where(invoice_chains.c.chain == chain)
    row = conn.execute(query).one_or_none()
    return (0, None) if row is None else (row.tip, row.looked_at)


def note_look(conn: Connection, chain: str, tip: int, at: datetime) -> None:
    insert_once(conn, invoice_chains, {"chain": chain, "next_index": 0, "tip": 0})
    of_chain = update(invoice_chains).where(invoice_chains.c.chain == chain)
    conn.execute(of_chain.values(tip=tip, looked_at=at))


def add(conn: Connection, invoice: Invoice, *, asked_by: str, asked_near: str | None = None) -> None:
    row = _invoice_row(invoice)
    conn.execute(insert(invoices).values(**row, asked_by=asked_by, asked_near=asked_near))
    _write_step(conn, invoice, "created", {}, invoice.created_at)
    announce(conn, topic(invoice.price.asset))


def count_open(
    conn: Connection,
    *,
    asked_by: str | None = None,
    asked_near: str | None = None,
    by_strangers: bool = False,
) -> int:
    """Count the invoices that still wait for a sufficient payment."""
    query = select(func.count()).select_from(invoices).where(invoices.c.state.in_([s.value for s in OPEN]))
    if asked_by is not None:
        query = query.where(invoices.c.asked_by == asked_by)
    if asked_near is not None:
        query = query.where(invoices.c.asked_near == asked_near)
    if by_strangers:
        query = query.where(invoices.c.asked_near.is_not(None))
    return int(conn.execute(query).scalar_one())


def find(conn: Connection, id: str, *, lock: bool = False) -> Invoice:
    return _invoice(load_row(conn, invoices, id, what="invoice", lock=lock))


def watched(conn: Connection, asset: str, *, since: datetime | None = None) -> list[Invoice]:
    """Return the invoices whose address is watched, or only those created since a moment."""
    query = select(invoices).where(invoices.c.asset == asset, invoices.c.watch_until.is_not(None))
    if since is not None:
        query = query.where(invoices.c.created_at >= since)
    return [_invoice(row) for row in conn.execute(query)]


def page(conn: Connection, *, state: State | None, after: str | None, limit: int) -> list[Invoice]:
    """Newest first; `after` is the id of the last one seen."""
    query = select(invoices).order_by(invoices.c.created_at.desc(), invoices.c.id.desc())
    if state is not None:
        query = query.where(invoices.c.state == state.value)
    if after is not None:
        query = query.where(after_last(invoices, find(conn, after)))
    return [_invoice(row) for row in conn.execute(query.limit(max(1, min(limit, MAX_PAGE))))]


def save(
    conn: Connection, before: Invoice, after: Invoice, *, signal: str, data: Mapping[str, Any], now: datetime
) -> Invoice:
    """Write what changed as one more step of the invoice's history; nothing if nothing changed."""
    if after == before and not data:
        return before
    saved = replace(after, steps=before.steps + 1, updated_at=now)
    conn.execute(update(invoices).where(invoices.c.id == saved.id).values(**_invoice_row(saved)))
    _write_step(conn, saved, signal, data, now)
    return saved


def tell_progress(conn: Connection, invoice: Invoice, *, now: datetime) -> None:
    """Record progress that changes no state, such as one more confirmation."""
    _tell(conn, invoice, "invoice.progress", "look", now)


def watch_until(conn: Connection, id: str, until: datetime) -> Invoice:
    """Watch an invoice's address at least until then."""
    invoice = find(conn, id, lock=True)
    if invoice.watch_until is None or invoice.watch_until < until:
        conn.execute(update(invoices).where(invoices.c.id == id).values(watch_until=until))
    return find(conn, id)


def end_watch(conn: Connection, ids: Sequence[str]) -> None:
    conn.execute(update(invoices).where(invoices.c.id.in_(ids)).values(watch_until=None))


def outputs_of(conn: Connection, id: str) -> tuple[Output, ...]:
    query = select(invoice_outputs).where(invoice_outputs.c.invoice == id)
    found = [_output(row) for row in conn.execute(query)]
    return tuple(sorted(found, key=lambda o: (o.first_seen_at, o.name)))


def save_outputs(conn: Connection, before: Iterable[Output], after: Iterable[Output]) -> None:
    known = {output.name: output for output in before}
    key = invoice_outputs.c
    for output in after:
        row = _output_row(output)
        if output.name not in known:
            conn.execute(insert(invoice_outputs).values(**row))
        elif output != known[output.name]:
            same = (key.chain == output.chain, key.txid == output.txid, key.output == output.output)
            conn.execute(update(invoice_outputs).where(*same).values(**row))


def steps_of(conn: Connection, id: str) -> list[Row[Any]]:
    query = select(invoice_steps).where(invoice_steps.c.invoice == id).order_by(invoice_steps.c.number)
    return list(conn.execute(query))


def refunds_of(conn: Connection, id: str) -> list[Refund]:
    query = select(refunds).where(refunds.c.invoice == id).order_by(refunds.c.created_at, refunds.c.id)
    return [refund_from(row) for row in conn.execute(query)]


def _write_step(
    conn: Connection, invoice: Invoice, signal: str, data: Mapping[str, Any], now: datetime
) -> None:
    values = {
        "invoice": invoice.id,
        "number": invoice.steps,
        "at": now,
        "state": invoice.state.value,
        "signal": signal,
        "data": dict(data),
    }
    conn.execute(insert(invoice_steps).values(**values))
    _tell(conn, invoice, f"invoice.{invoice.state.value}", signal, now)


def _tell(conn: Connection, invoice: Invoice, kind: str, reason: str, now: datetime) -> None:
    data = {"state": invoice.state.value, "account": invoice.account, "asset": invoice.price.asset}
    record(conn, subject=invoice.id, kind=kind, actor=ACTOR, reason=reason, at=now, data=data)


def _invoice_row(invoice: Invoice) -> dict[str, Any]:
    price, buys = invoice.price, invoice.buys
    return {
        "id": invoice.id,
        "kind": buys.kind,
        "tier": buys.tier,
        "months": buys.months,
        "cents": buys.cents,
        "reference": buys.reference,
        "asset": price.asset,
        "atomic": str(price.atomic),
        "sats": price.sats,
        "usd": None if price.usd is None else str(price.usd),
        "btc_usd": None if price.btc_usd is None else str(price.btc_usd),
        "rate_sources": list(price.rate_sources),
        "state": invoice.state.value,
        "address": invoice.address,
        "address_index": invoice.index,
        "account": invoice.account,
        "is_new_account": invoice.is_new_account,
        "claim_hash": invoice.claim_hash,
        "public_key": invoice.public_key,
        "refund_address": invoice.refund_address,
        "confirmations": invoice.confirmations,
        "created_at": invoice.created_at,
        "expires_at": invoice.expires_at,
        "confirm_by": invoice.confirm_by,
        "deliveries": invoice.deliveries,
        "is_delivered": invoice.is_delivered,
        "granted": dict(invoice.granted),
        "watch_until": invoice.watch_until,
        "updated_at": invoice.updated_at,
        "steps": invoice.steps,
    }


def _invoice(row: Row[Any]) -> Invoice:
    price = from_row(
        Price,
        row,
        atomic=int(row.atomic),
        usd=None if row.usd is None else Decimal(row.usd),
        btc_usd=None if row.btc_usd is None else Decimal(row.btc_usd),
        rate_sources=tuple(row.rate_sources),
    )
    state, index = State(row.state), row.address_index
    return from_row(Invoice, row, buys=from_row(Buys, row), price=price, state=state, index=index)


def _output_row(output: Output) -> dict[str, Any]:
    return {
        "chain": output.chain,
        "txid": output.txid,
        "output": output.output,
        "invoice": output.invoice,
        "amount": str(output.amount),
        "depth": output.depth,
        "block": output.block,
        "height": output.height,
        "is_there": output.is_there,
        "is_unlocked": output.is_unlocked,
        "missed": output.missed,
        "is_in_time": output.is_in_time,
        "first_seen_at": output.first_seen_at,
        "settled": output.settled.value,
        "sale_sats": output.sale_sats,
        "bucket_sats": output.bucket_sats,
        "is_for_price": output.is_for_price,
        "round": output.round,
    }


def _output(row: Row[Any]) -> Output:
    values = {name: getattr(row, name) for name in row._fields}
    return Output(**values | {"amount": int(row.amount), "settled": Settled(row.settled)})


def refund_from(row: Row[Any]) -> Refund:
    values = {name: getattr(row, name) for name in row._fields}
    amounts = {name: int(values[name]) for name in ("received", "amount", "kept")}
    made = {
        "fee": None if row.fee is None else int(row.fee),
        "prepared": None if row.prepared is None else bytes.fromhex(row.prepared),
    }
    return Refund(**values | amounts | made | {"state": RefundState(row.state)})
