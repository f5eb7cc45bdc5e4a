"""Routes of an account's webhooks: create, change, test, list deliveries, and send them again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import audit
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.idempotency import once
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.requests import caller, platform_of, require_owner
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.observe.webhooks import outbox
from sandboxer.observe.webhooks.endpoints import Endpoint, once_id
from sandboxer.wire import webhooks as wire
from sandboxer.wire.operations import webhooks as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import DeliveryPath, WebhookPath
from sandboxer.wire.operations.webhooks import ListWebhookDeliveriesQuery
from sandboxer.wire.webhooks import (
    ChangeWebhook,
    CreateWebhook,
    Delivery,
    DeliveryPage,
    NewWebhook,
    RotateSecret,
    Webhook,
    WebhookList,
)


async def create(asked: Asked[NoParameters, NoParameters, CreateWebhook]) -> Response:
    platform, who = asked.platform, asked.caller
    if asked.body.all_accounts:
        require_owner(asked.request)
    await platform.authorities.of(who)

    async def act() -> Response:
        made, secret = await platform.webhooks.create(
            who.account,
            asked.body.url,
            kinds=asked.body.kinds,
            hears_all=asked.body.all_accounts,
            actor=_actor(asked.request),
        )
        await _write_down(asked.request, "webhook.create", made.id, url=made.url, all_accounts=made.hears_all)
        return json_response(_with_secret(made, secret), 201)

    return await once(asked.request, act, keep_answer=False)


async def list_all(asked: Asked[NoParameters, NoParameters, None]) -> WebhookList:
    platform, who = asked.platform, asked.caller
    found = await platform.webhooks.of_account(who.account)
    return wire.WebhookList(webhooks=[_shown(one) for one in found])


async def get(asked: Asked[WebhookPath, NoParameters, None]) -> Webhook:
    platform, who = asked.platform, asked.caller
    found = await platform.webhooks.get(who.account, asked.path.webhook_id)
    return _shown(found)


async def change(asked: Asked[WebhookPath, NoParameters, ChangeWebhook]) -> Webhook:
    platform, who = asked.platform, asked.caller
    if asked.body == wire.ChangeWebhook():
        raise InvalidRequest(field="body", why="it changes nothing: give url, kinds or enabled")
    changed = await platform.webhooks.change(
        who.account,
        asked.path.webhook_id,
        actor=_actor(asked.request),
        url=asked.body.url,
        kinds=asked.body.kinds,
        enabled=asked.body.enabled,
    )
    await _write_down(
        asked.request, "webhook.change", asked.path.webhook_id, url=changed.url, enabled=changed.enabled
    )
    return _shown(changed)


async def remove(asked: Asked[WebhookPath, NoParameters, None]) -> Response:
    await asked.platform.webhooks.remove(
        asked.caller.account, asked.path.webhook_id, actor=_actor(asked.request)
    )
    await _write_down(asked.request, "webhook.remove", asked.path.webhook_id)
    return nothing()


async def rotate(asked: Asked[WebhookPath, NoParameters, RotateSecret]) -> NewWebhook:
    account = asked.caller.account
    # No overlap at all is for a secret that has leaked.
    is_none = not int(asked.body.overlap[:-1])
    overlap = timedelta() if is_none else parse_duration(asked.body.overlap, field="overlap")
    found, secret = await asked.platform.webhooks.rotate(
        account, _stored_id(account, asked.path.webhook_id), actor=_actor(asked.request), overlap=overlap
    )
    await _write_down(asked.request, "webhook.rotate", asked.path.webhook_id)
    return _with_secret(found, secret)


async def test(asked: Asked[WebhookPath, NoParameters, None]) -> Delivery:
    platform, who = asked.platform, asked.caller
    sent = await platform.webhooks.test(who.account, asked.path.webhook_id)
    return await _delivery(asked.request, sent)


async def deliveries(asked: Asked[WebhookPath, ListWebhookDeliveriesQuery, None]) -> DeliveryPage:
    platform, account = asked.platform, asked.caller.account
    before = None if asked.query.cursor is None else int(asked.query.cursor)
    found, attempts = await platform.webhooks.deliveries(
        account,
        _stored_id(account, asked.path.webhook_id),
        before=before,
        limit=asked.query.limit + 1,
        state=asked.query.state,
    )
    shown = [_shown_delivery(one, attempts[one.id]) for one in found[: asked.query.limit]]
    following = str(found[asked.query.limit - 1].seq) if len(found) > asked.query.limit else None
    return wire.DeliveryPage(deliveries=shown, next_cursor=following)


async def redeliver(asked: Asked[DeliveryPath, NoParameters, None]) -> Delivery:
    platform, account = asked.platform, asked.caller.account
    sent = await platform.webhooks.redeliver(
        account, _stored_id(account, asked.path.webhook_id), asked.path.delivery_id
    )
    return await _delivery(asked.request, sent)


async def _delivery(request: Request, delivery: outbox.Delivery) -> wire.Delivery:
    return _shown_delivery(delivery, await platform_of(request).webhooks.attempts(delivery))


async def _write_down(request: Request, action: str, subject: str, **data: Any) -> None:
    platform = platform_of(request)
    now = platform.clock.now()
    await audit.write_down(platform.store, caller(request), action, {subject: data}, now=now)


def _stored_id(account: str, webhook_id: str) -> str:
    return once_id(account) if webhook_id == "once" else webhook_id


def _actor(request: Request) -> str:
    return f"key:{caller(request).public_key}"


def _shown(endpoint: Endpoint) -> wire.Webhook:
    return wire.Webhook(**_facts(endpoint))


def _with_secret(endpoint: Endpoint, secret: str) -> wire.NewWebhook:
    return wire.NewWebhook(**_facts(endpoint), secret=secret)


def _facts(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "id": endpoint.id if endpoint.url else "once",
        "account": endpoint.account,
        "url": endpoint.url,
        "kinds": list(endpoint.kinds),
        "all_accounts": endpoint.hears_all,
        "enabled": endpoint.enabled,
        "disabled_reason": endpoint.disabled_reason,
        "old_secret_until": endpoint.old_secret_until,
        "created_at": endpoint.created_at,
    }


def _shown_delivery(delivery: outbox.Delivery, attempts: Sequence[outbox.Attempt]) -> wire.Delivery:
    return wire.Delivery(
        id=delivery.id,
        message_id=delivery.message,
        kind=delivery.kind,
        state=delivery.state.value,
        reason=delivery.reason,
        created_at=delivery.created_at,
        next_try_at=delivery.due_at,
        ended_at=delivery.ended_at,
        attempts=[
            wire.DeliveryAttempt(
                at=one.at, took_ms=one.took_ms, status=one.status, outcome=one.outcome, reason=one.reason
            )
            for one in attempts
        ],
    )


BINDINGS: tuple[Binding, ...] = (
    bind(operations.CREATE_WEBHOOK, create),
    bind(operations.LIST_WEBHOOKS, list_all),
    bind(operations.GET_WEBHOOK, get),
    bind(operations.CHANGE_WEBHOOK, change),
    bind(operations.REMOVE_WEBHOOK, remove),
    bind(operations.ROTATE_WEBHOOK_SECRET, rotate),
    bind(operations.TEST_WEBHOOK, test),
    bind(operations.LIST_WEBHOOK_DELIVERIES, deliveries),
    bind(operations.REDELIVER_WEBHOOK, redeliver),
)
