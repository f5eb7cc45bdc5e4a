"""Webhooks of an account: make, change, test; look at what was delivered, and have it sent again."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.auditing import write_down
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.idempotency import IdempotencyKey, once
from sandboxer.edges.http.state import caller, platform_of, require_owner
from sandboxer.kernel.durations import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.observe.webhooks import endpoints, outbox
from sandboxer.observe.webhooks.endpoints import Endpoint, once_id
from sandboxer.wire import webhooks as wire
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])


@router.post(
    "",
    operation_id="createWebhook",
    status_code=201,
    response_model=wire.NewWebhook,
    responses=failures(409),
    summary="Be told of what happens, by signed requests; the secret is shown once",
)
async def create(
    request: Request, body: wire.CreateWebhook, idempotency_key: IdempotencyKey = None
) -> Response:
    platform, who = platform_of(request), caller(request)
    if body.all_accounts:
        require_owner(request)
    await platform.authorities.of(who)

    async def act() -> Response:
        made, secret = await platform.webhooks.create(
            who.account,
            body.url,
            kinds=body.kinds,
            hears_all=body.all_accounts,
            actor=_actor(request),
        )
        await write_down(request, "webhook.create", made.id, url=made.url, all_accounts=made.hears_all)
        return json_response(_with_secret(made, secret), 201)

    return await once(request, act, keep_answer=False)


@router.get(
    "",
    operation_id="listWebhooks",
    response_model=wire.WebhookList,
    responses=failures(),
    summary="This account's webhooks",
)
async def list_all(request: Request) -> Response:
    platform, who = platform_of(request), caller(request)
    found = await platform.store.read(lambda conn: endpoints.of_account(conn, who.account))
    return json_response(wire.WebhookList(webhooks=[_shown(one) for one in found]))


@router.get(
    "/{webhook_id}",
    operation_id="getWebhook",
    response_model=wire.Webhook,
    responses=failures(404),
    summary="One webhook",
)
async def get(request: Request, webhook_id: wire.WebhookId) -> Response:
    platform, who = platform_of(request), caller(request)
    found = await platform.store.read(lambda conn: endpoints.load(conn, who.account, webhook_id))
    return json_response(_shown(found))


@router.patch(
    "/{webhook_id}",
    operation_id="changeWebhook",
    response_model=wire.Webhook,
    responses=failures(404),
    summary="Change where it goes, what it hears of, or switch it off and on",
)
async def change(request: Request, webhook_id: wire.WebhookId, body: wire.ChangeWebhook) -> Response:
    platform, who = platform_of(request), caller(request)
    if body == wire.ChangeWebhook():
        raise InvalidRequest(field="body", why="it changes nothing: give url, kinds or enabled")
    changed = await platform.webhooks.change(
        who.account,
        webhook_id,
        actor=_actor(request),
        url=body.url,
        kinds=body.kinds,
        enabled=body.enabled,
    )
    await write_down(request, "webhook.change", webhook_id, url=changed.url, enabled=changed.enabled)
    return json_response(_shown(changed))


@router.delete(
    "/{webhook_id}",
    operation_id="removeWebhook",
    status_code=204,
    response_class=Response,
    responses=failures(404),
    summary="Be told no more; what waits is not sent",
)
async def remove(request: Request, webhook_id: wire.WebhookId) -> Response:
    await platform_of(request).webhooks.remove(caller(request).account, webhook_id, actor=_actor(request))
    await write_down(request, "webhook.remove", webhook_id)
    return nothing()


@router.post(
    "/{webhook_id}/rotate-secret",
    operation_id="rotateWebhookSecret",
    response_model=wire.NewWebhook,
    responses=failures(404),
    summary="A new secret, shown once; the old one signs beside it for a while",
)
async def rotate(request: Request, webhook_id: wire.WebhookId, body: wire.RotateSecret) -> Response:
    account = caller(request).account
    # None at all is for a secret that leaked.
    is_none = not int(body.overlap[:-1])
    overlap = timedelta() if is_none else parse_duration(body.overlap, field="overlap")
    found, secret = await platform_of(request).webhooks.rotate(
        account, _stored_id(account, webhook_id), actor=_actor(request), overlap=overlap
    )
    await write_down(request, "webhook.rotate", webhook_id)
    return json_response(_with_secret(found, secret))


@router.post(
    "/{webhook_id}/test",
    operation_id="testWebhook",
    response_model=wire.Delivery,
    responses=failures(404),
    summary="Send a test message now, and say how that went",
)
async def test(request: Request, webhook_id: wire.WebhookId) -> Response:
    platform, who = platform_of(request), caller(request)
    sent = await platform.webhooks.test(who.account, webhook_id)
    return json_response(await _delivery(request, sent))


@router.get(
    "/{webhook_id}/deliveries",
    operation_id="listWebhookDeliveries",
    response_model=wire.DeliveryPage,
    responses=failures(404),
    summary="What was sent and what waits, newest first, each with its tries",
)
async def deliveries(
    request: Request,
    webhook_id: wire.WebhookId,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$", max_length=18)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT,
    state: Annotated[wire.DeliveryState | None, Query()] = None,
) -> Response:
    platform, account = platform_of(request), caller(request).account
    before = None if cursor is None else int(cursor)

    def read(conn: Connection) -> tuple[list[outbox.Delivery], dict[str, list[outbox.Attempt]]]:
        if webhook_id != "once":
            endpoints.load(conn, account, webhook_id)
        stored = _stored_id(account, webhook_id)
        found = outbox.page(conn, stored, before=before, limit=limit + 1, state=state)
        return found, outbox.attempts_of(conn, [one.id for one in found])

    found, attempts = await platform.store.read(read)
    shown = [_shown_delivery(one, attempts[one.id]) for one in found[:limit]]
    following = str(found[limit - 1].seq) if len(found) > limit else None
    return json_response(wire.DeliveryPage(deliveries=shown, next_cursor=following))


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/redeliver",
    operation_id="redeliverWebhook",
    response_model=wire.Delivery,
    responses=failures(404, 409),
    summary="Send it again now, whatever became of it; the same webhook-id",
)
async def redeliver(request: Request, webhook_id: wire.WebhookId, delivery_id: wire.DeliveryId) -> Response:
    platform, account = platform_of(request), caller(request).account
    sent = await platform.webhooks.redeliver(account, _stored_id(account, webhook_id), delivery_id)
    return json_response(await _delivery(request, sent))


async def _delivery(request: Request, delivery: outbox.Delivery) -> wire.Delivery:
    attempts = await platform_of(request).store.read(lambda conn: outbox.attempts_of(conn, [delivery.id]))
    return _shown_delivery(delivery, attempts[delivery.id])


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


def _shown_delivery(delivery: outbox.Delivery, attempts: list[outbox.Attempt]) -> wire.Delivery:
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
