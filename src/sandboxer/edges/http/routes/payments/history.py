"""Payments that were made: one's own, or any by its id, which nobody can guess."""

from __future__ import annotations

from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.purchases import shown
from sandboxer.payments import records
from sandboxer.wire.operations import payments as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import PaymentPath
from sandboxer.wire.operations.payments import ListPaymentsQuery
from sandboxer.wire.payments import Payment, PaymentPage


async def list_payments(asked: Asked[NoParameters, ListPaymentsQuery, None]) -> PaymentPage:
    account = asked.caller.account
    found = await asked.platform.store.read(
        lambda conn: records.page(conn, account, cursor=asked.query.cursor, limit=asked.query.limit)
    )
    following = found[-1].id if len(found) == asked.query.limit else None
    return PaymentPage.model_construct(payments=[shown(one) for one in found], next_cursor=following)


async def get_payment(asked: Asked[PaymentPath, NoParameters, None]) -> Payment:
    found = await asked.platform.store.read(lambda conn: records.load(conn, asked.path.payment_id))
    return shown(found)


BINDINGS: tuple[Binding, ...] = (
    bind(operations.LIST_PAYMENTS, list_payments),
    bind(operations.GET_PAYMENT, get_payment),
)
