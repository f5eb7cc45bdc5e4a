"""The platform, the key that asks, and what is bought: unsandbox's portal, in its words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from sandboxer.edges.http.binding import Asked, AskedBody, bind
from sandboxer.edges.http.bodies import EventStream, ServerEvent
from sandboxer.edges.http.routes import keys, platform
from sandboxer.edges.http.routes.payments import gift_cards, invoices, payments
from sandboxer.edges.unsandbox.translation import ask, ours, told
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest, NotAvailable, NotFound
from sandboxer.observe.events import Event
from sandboxer.wire.gift_cards import BuyGiftCard, Redeem
from sandboxer.wire.invoices import AskInvoice
from sandboxer.wire.keys import ValidateKey
from sandboxer.wire.operations.payments import CardPath, InvoicePath, RedemptionPath
from sandboxer.wire.unsandbox import models, operations

# How often one asks whether something was paid or approved.
POLL_S = 14
_PAID = {"granted": "redeemed"}
_LINES = 500
# Events of everybody, among which those of one account are looked for.
_LOOKED_AT = 20_000


async def health(asked: Asked) -> Response:
    seen = await platform.look(asked.platform)
    return told({"status": seen.status}, 200 if seen.status == "ok" else 503)


async def cluster(asked: Asked) -> Response:
    seen = await ask(platform.cluster, asked)
    names = ("mode", "pool_size", "available", "allocated", "spawning")
    return told({name: seen[name] for name in names})


async def stats(asked: Asked) -> Response:
    return told(await ask(platform.stats, asked))


async def pools(asked: Asked) -> Response:
    seen = await ask(platform.pools, asked)
    return told({"pools": seen["warm"], "count": len(seen["warm"])})


async def validate_key(asked: Asked) -> Response:
    """Answers for the key that signed: who may not sign is refused before, with the reason."""
    public_key = asked.caller.public_key
    report = await ask(keys.validate, asked, body=ValidateKey(public_key=public_key))
    limits = await ask(platform.limits, asked)
    tier = report["tier"] or {}
    level = tier.get("level", 0)
    expires_at = tier.get("until") or report["expires_at"]
    rate = min((one["per_minute"] for one in limits["requests"]), default=None)
    values = {
        "status": "active",
        "reason": report["reason"],
        "tier": level,
        "tier_level": level,
        "expires_at": expires_at,
        "valid_through_datetime": expires_at,
        "valid_for_human": _left(expires_at),
        "rate_limit": rate,
        "rate_per_minute": rate,
        "burst": rate,
        "concurrency": tier.get("slots") or limits["slots"],
    }
    return told(models.KeyState(valid=report["is_valid"], public_key=public_key, **values))


def _left(moment: str | None) -> str | None:
    if moment is None:
        return "without an end"
    left = datetime.fromisoformat(moment) - datetime.now(UTC)
    return f"{left.days} days" if left.days else f"{int(left.total_seconds() // 3600)} hours"


async def throttled(asked: Asked) -> Response:
    limits = await ask(platform.limits, asked)
    counted = min(limits["requests"], key=lambda one: int(one["left"]), default=None)
    slots, used = limits["slots"], limits["slots_in_use"]
    is_fast = counted is not None and counted["left"] <= 0
    is_full = slots is not None and used >= slots
    return told(
        {
            "burst": None if counted is None else counted["per_minute"],
            "concurrency": slots,
            "requests_used_in_last_60s": 0 if counted is None else counted["per_minute"] - counted["left"],
            "active_executions": used,
            "should_throttle": is_fast or is_full,
            "should_throttle_rate": is_fast,
            "should_throttle_concurrency": is_full,
        }
    )


async def draw(asked: Asked) -> Response:
    raise NotAvailable(what="drawing of pictures", why="sandboxes are all that this platform has")


async def logs(asked: Asked[Any, operations.LogsQuery]) -> Response:
    """Answers with what happened to the account lately: a platform's own log is its operator's."""
    query = asked.query
    since = asked.platform.clock.now() - parse_duration(query.since, field="since")
    lines: list[dict[str, str]] = []
    after = max(0, await asked.platform.events.last_id() - _LOOKED_AT)
    while page := await asked.platform.events.page(asked.caller.account, after, _LINES):
        shown = (_line(event) for event in page if event.at >= since)
        lines = [*lines, *(one for one in shown if query.grep in one["line"])][-query.lines :]
        after = page[-1].id
    source = getattr(asked.path, "source", query.source)
    if source == "all":
        return told({"sources": ["account"], "lines": lines, "count": len(lines)})
    return told({"source": source, "lines": [one["line"] for one in lines], "count": len(lines)})


async def ask_logs(asked: AskedBody[models.AskLogs]) -> Response:
    said = asked.body
    query = operations.LogsQuery(source=said.source, lines=said.lines, since=said.since, grep=said.grep or "")
    return await logs(Asked(asked.request, asked.path, query, None))


async def stream_logs(asked: Asked[Any, operations.LogsQuery]) -> Response:
    events = asked.platform.events
    follow = events.follow(asked.caller.account, await events.last_id())

    async def happening() -> AsyncIterator[ServerEvent]:
        async with aclosing(follow) as seen:  # type: ignore[type-var]
            async for event in seen:
                if asked.query.grep in (line := _line(event))["line"]:
                    yield ServerEvent("message", line)

    return EventStream(happening(), begin_at_once=True)


def _line(event: Event) -> dict[str, str]:
    what = (
        f"{event.at.isoformat()} {event.kind} {event.data.get('sandbox_id', event.subject)}: {event.reason}"
    )
    return {"source": "account", "line": what}


async def prices(asked: Asked) -> Response:
    """Answers with the prices of tiers, and how one is paid."""
    seen = await ask(payments.get_pricing, asked)
    quotes = [
        {
            "tier": one["tier"],
            "tier_level": one["tier"],
            "months": one["months"],
            "duration": f"{one['months']} months",
            "total_price": f"{one['usd_cents'] / 100:.2f}",
            "cents": one["usd_cents"],
            "rpm": one["requests_per_minute"],
            "concurrency": one["slots"],
        }
        for one in seen["tiers"]
    ]
    invoice = {
        "method": "POST",
        "path": "/api/invoices",
        "params": ["tier_level", "months", "payment_method"],
    }
    status = {"method": "GET", "path": "/payment/{invoice_id}/status", "poll_interval_seconds": POLL_S}
    return told({"api": {"create_invoice": invoice, "check_status": status}, "quotes": quotes})


async def new_invoice(asked: AskedBody[models.NewInvoice]) -> Response:
    body = ours(
        AskInvoice,
        currency=asked.body.payment_method.upper(),
        tier=asked.body.tier_level,
        months=asked.body.months,
        refund_address=asked.body.refund_address,
    )
    return told(_invoice(await ask(invoices.create, asked, body=body)))


async def payment(asked: Asked[InvoicePath, operations.ClaimQuery]) -> Response:
    """Answers how far it is. Who names the claim of the invoice gets the key of a new account, once."""
    seen = await ask(invoices.show, asked)
    return told({**_invoice(seen), "api_key": await _key(asked, seen["public_key"], asked.query.claim)})


def _invoice(made: dict[str, Any]) -> dict[str, Any]:
    """Returns an invoice in their words, with our own beside them."""
    return {
        **made,
        "invoice_id": made["id"],
        "status": made["state"],
        "payment_address": made["address"],
        "checkout_url": made["payment_uri"],
        "tier_level": made["tier"],
        "poll_interval_seconds": made["poll_after_s"],
    }


async def new_gift_card(asked: AskedBody[models.NewGiftCard]) -> Response:
    said = asked.body
    approval = {"email": said.approval_email, "webhook": said.approval_webhook}
    body = ours(
        BuyGiftCard,
        cents=said.cents,
        currency=said.currency.upper(),
        refund_address=said.refund_address,
        approval={name: value for name, value in approval.items() if value} or None,
    )
    made = await ask(gift_cards.buy, asked, body=body)
    bill = made.get("bill")
    return told({**_card(made), "invoice": None if bill is None else _invoice(bill)})


async def redeem(asked: AskedBody[models.RedeemGiftCard]) -> Response:
    """Redeems, and hands a new account's key over with the same answer, where nobody has to approve it."""
    if asked.body.tier_level is None or asked.body.months is None:
        raise InvalidRequest(field="tier_level", why="say which tier, and for how many months")
    body = ours(
        Redeem,
        code=asked.body.code,
        tier=asked.body.tier_level,
        months=asked.body.months,
        request_id=asked.body.request_id,
    )
    done = await ask(gift_cards.redeem, asked, body=body)
    is_granted = done["state"] == "granted"
    key = await _key(asked, done["public_key"], done["claim"] if is_granted else None)
    return told({**_redemption(done), "api_key": key})


async def _key(
    asked: Asked[Any, Any, Any], public_key: str | None, claim: str | None
) -> dict[str, Any] | None:
    """Returns the key of a new account to whom it was promised, once. It may be signed with as their clients
    do.
    """
    if public_key is None or claim is None:
        return None
    shown = await asked.platform.key_life.reveal(public_key, claim, accepts_v1=True)
    return {"public_key": shown.public_key, "secret_key": shown.secret_key}


async def gift_status(asked: Asked[operations.GiftPath, operations.ClaimQuery]) -> Response:
    """Answers for a card, or for what was redeemed of one; who names the claim of the latter gets its key."""
    gift = asked.path.gift
    if gift.startswith("rdm_"):
        path = RedemptionPath(redemption_id=gift)
        seen = await ask(gift_cards.show_redemption, asked, path=path)
        return told(
            {**_redemption(seen), "api_key": await _key(asked, seen["public_key"], asked.query.claim)}
        )
    if not gift.startswith("gft_"):
        raise NotFound(what="gift card", id=gift)
    return told(_card(await ask(gift_cards.show, asked, path=CardPath(card_id=gift))))


async def gift_prices(asked: Asked) -> Response:
    seen = await ask(payments.get_pricing, asked)
    terms = await ask(gift_cards.pricing, asked)
    shown = [
        {"tier_level": one["tier"], "months": one["months"], "cents": one["usd_cents"]}
        for one in seen["tiers"]
    ]
    return told({"prices": shown, "count": len(shown), "min_cents": terms["min_cents"], "terms": terms})


def _card(card: dict[str, Any]) -> dict[str, Any]:
    return {
        **card,
        "status": card["state"],
        "balance_cents": card["left_cents"],
        "poll_interval_seconds": card["poll_after_s"],
    }


def _redemption(done: dict[str, Any]) -> dict[str, Any]:
    return {
        **done,
        "status": _PAID.get(done["state"], done["state"]),
        "tier_level": done["tier"],
        "balance_cents": done["left_cents"],
        "poll_interval_seconds": done["poll_after_s"],
    }


BINDINGS = (
    bind(operations.HEALTH, health),
    bind(operations.CLUSTER, cluster),
    bind(operations.STATS, stats),
    bind(operations.POOLS, pools),
    bind(operations.VALIDATE_KEY, validate_key),
    bind(operations.THROTTLED, throttled),
    bind(operations.LOGS, logs),
    bind(operations.LOGS_OF, logs),
    bind(operations.STREAM_LOGS, stream_logs),
    bind(operations.STREAM_LOGS_OF, stream_logs),
    bind(operations.ASK_LOGS, ask_logs),
    bind(operations.STREAM_LOGS_TOO, stream_logs),
    bind(operations.DRAW, draw),
    bind(operations.PRICES, prices),
    bind(operations.NEW_INVOICE, new_invoice),
    bind(operations.CHECKOUT, new_invoice),
    bind(operations.PAYMENT, payment),
    bind(operations.NEW_GIFT_CARD, new_gift_card),
    bind(operations.REDEEM, redeem),
    bind(operations.GIFT_STATUS, gift_status),
    bind(operations.GIFT_PRICES, gift_prices),
)
