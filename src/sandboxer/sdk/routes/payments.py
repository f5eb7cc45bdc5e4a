"""Paying and what was paid."""

from __future__ import annotations

from sandboxer.sdk.calls import Call, json_body, new_idempotency_key, target
from sandboxer.sdk.routes.reading import model
from sandboxer.wire import payments as wire

# A settlement may take as long as its chain does.
SETTLE_TIMEOUT_S = 120.0


def top_up(sats: int, *, account: str | None) -> Call[wire.Bought]:
    body, headers = json_body({"sats": sats, **({} if account is None else {"account": account})})
    return Call(
        method="POST",
        target="/v1/topups",
        body=body,
        headers={**headers, "idempotency-key": new_idempotency_key()},
        read=model(wire.Bought),
        is_repeatable=True,
        timeout_s=SETTLE_TIMEOUT_S,
    )


def buy_key(tier: int, months: int) -> Call[wire.BoughtKey]:
    body, headers = json_body({"tier": tier, "months": months})
    return Call(
        method="POST",
        target="/v1/keys/purchase",
        body=body,
        headers={**headers, "idempotency-key": new_idempotency_key()},
        read=model(wire.BoughtKey),
        is_repeatable=True,
        timeout_s=SETTLE_TIMEOUT_S,
    )


def page(*, cursor: str | None, limit: int | None) -> Call[wire.PaymentPage]:
    where = target("/v1/payments", query={"cursor": cursor, "limit": limit})
    return Call(method="GET", target=where, read=model(wire.PaymentPage))


def get(payment_id: str) -> Call[wire.Payment]:
    return Call(method="GET", target=target("/v1/payments/{}", payment_id), read=model(wire.Payment))


def goods() -> Call[wire.Goods]:
    return Call(method="GET", target="/discovery/resources", read=model(wire.Goods))
