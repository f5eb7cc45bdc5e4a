"""Routes of what happened: as a stream with replay, for a sandbox or the caller's account, and by webhooks.

An account's webhooks are created, changed and tested; deliveries are listed, and sent again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import audit
from sandboxer.edges.http import answers
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, AskedQuery, bind
from sandboxer.edges.http.bodies import EventStream, ServerEvent
from sandboxer.edges.http.demands import refuse_by_socket
from sandboxer.edges.http.idempotency import once
from sandboxer.edges.http.requests import caller, platform_of, require_owner
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.observe.events import Event, Events
from sandboxer.observe.webhooks import outbox
from sandboxer.observe.webhooks.endpoints import Endpoint, once_id
from sandboxer.sandboxes.lifecycle import State
from sandboxer.wire import webhooks as wire
from sandboxer.wire.operations import accounts as operations
from sandboxer.wire.operations import sandboxes as sandbox_operations

# The last event of a sandbox.
LAST_KIND = "sandbox.destroyed"
PAGE = 500


async def follow_events(
    asked: Asked[sandbox_operations.SandboxPath, sandbox_operations.FollowEventsQuery],
) -> Response:
    sandbox = await asked.platform.sandboxes.visible(asked.path.sandbox_id, asked.caller)
    # Nothing more will happen to a sandbox that is gone, so its stream ends, even after its last event.
    is_open = asked.query.follow and sandbox.state is not State.DESTROYED
    return _stream(asked.platform.events, sandbox.id, asked.query, is_open=is_open)


async def follow_account(asked: AskedQuery[sandbox_operations.FollowEventsQuery]) -> Response:
    events, account = asked.platform.events, asked.caller.account
    return _stream(events, account, asked.query, is_open=asked.query.follow)


def _stream(
    events: Events,
    subject: str,
    query: sandbox_operations.FollowEventsQuery | sandbox_operations.FollowEventsQuery,
    *,
    is_open: bool,
) -> Response:
    start = max(query.after, query.last_event_id or 0)
    source = _followed(events, subject, start) if is_open else _known(events, subject, start)
    return EventStream(source, begin_at_once=True)


async def _followed(events: Events, subject: str, after: int) -> AsyncIterator[ServerEvent]:
    async with aclosing(events.follow(subject, after)) as happening:  # type: ignore[type-var]
        async for event in happening:
            yield _event(event)
            if event.kind == LAST_KIND:
                return


async def _known(events: Events, subject: str, after: int) -> AsyncIterator[ServerEvent]:
    while page := await events.page(subject, after, PAGE):
        for event in page:
            yield _event(event)
        after = page[-1].id


def _event(event: Event) -> ServerEvent:
    return ServerEvent(event.kind, answers.event(event), str(event.id))


async def create_webhook(asked: AskedBody[wire.CreateWebhook]) -> Response:
    platform, who = asked.platform, asked.caller
    refuse_by_socket(who)
    if asked.body.all_accounts:
        require_owner(asked.request)
    await platform.authorities.of(who)

    async def act() -> Response:
        made, secret = await platform.webhooks.create(
            who.account,
            asked.body.url,
            kinds=asked.body.kinds,
            hears_all=asked.body.all_accounts,
            actor=asked.actor,
        )
        await _write_down(asked.request, "webhook.create", made.id, url=made.url, all_accounts=made.hears_all)
        return json_response(_with_secret(made, secret), 201)

    return await once(asked.request, act, keep_answer=False)


async def list_webhooks(asked: Asked) -> wire.WebhookList:
    found = await asked.platform.webhooks.of_account(asked.caller.account)
    return wire.WebhookList(webhooks=[_shown(one) for one in found])


async def get_webhook(asked: Asked[operations.WebhookPath]) -> wire.Webhook:
    return _shown(await asked.platform.webhooks.get(asked.caller.account, asked.path.webhook_id))


async def change_webhook(asked: AskedPathBody[operations.WebhookPath, wire.ChangeWebhook]) -> wire.Webhook:
    refuse_by_socket(asked.caller)
    if asked.body == wire.ChangeWebhook():
        raise InvalidRequest(field="body", why="it changes nothing: give url, kinds or enabled")
    changed = await asked.platform.webhooks.change(
        asked.caller.account,
        asked.path.webhook_id,
        actor=asked.actor,
        url=asked.body.url,
        kinds=asked.body.kinds,
        enabled=asked.body.enabled,
    )
    await _write_down(
        asked.request, "webhook.change", asked.path.webhook_id, url=changed.url, enabled=changed.enabled
    )
    return _shown(changed)


async def remove_webhook(asked: Asked[operations.WebhookPath]) -> None:
    await asked.platform.webhooks.remove(asked.caller.account, asked.path.webhook_id, actor=asked.actor)
    await _write_down(asked.request, "webhook.remove", asked.path.webhook_id)


async def rotate_secret(asked: AskedPathBody[operations.WebhookPath, wire.RotateSecret]) -> wire.NewWebhook:
    refuse_by_socket(asked.caller)
    # No overlap at all is for a secret that has leaked.
    is_none = not int(asked.body.overlap[:-1])
    overlap = timedelta() if is_none else parse_duration(asked.body.overlap, field="overlap")
    found, secret = await asked.platform.webhooks.rotate(
        asked.caller.account, _stored_id(asked), actor=asked.actor, overlap=overlap
    )
    await _write_down(asked.request, "webhook.rotate", asked.path.webhook_id)
    return _with_secret(found, secret)


async def test_webhook(asked: Asked[operations.WebhookPath]) -> wire.Delivery:
    sent = await asked.platform.webhooks.test(asked.caller.account, asked.path.webhook_id)
    return await _delivery(asked.request, sent)


async def deliveries(
    asked: Asked[operations.WebhookPath, operations.ListWebhookDeliveriesQuery],
) -> wire.DeliveryPage:
    found, attempts = await asked.platform.webhooks.deliveries(
        asked.caller.account,
        _stored_id(asked),
        before=None if asked.query.cursor is None else int(asked.query.cursor),
        limit=asked.query.limit + 1,
        state=asked.query.state,
    )
    shown = [_shown_delivery(one, attempts[one.id]) for one in found[: asked.query.limit]]
    following = str(found[asked.query.limit - 1].seq) if len(found) > asked.query.limit else None
    return wire.DeliveryPage(deliveries=shown, next_cursor=following)


async def redeliver(asked: Asked[operations.DeliveryPath]) -> wire.Delivery:
    sent = await asked.platform.webhooks.redeliver(
        asked.caller.account, _stored_id(asked), asked.path.delivery_id
    )
    return await _delivery(asked.request, sent)


async def _delivery(request: Request, delivery: outbox.Delivery) -> wire.Delivery:
    return _shown_delivery(delivery, await platform_of(request).webhooks.attempts(delivery))


async def _write_down(request: Request, action: str, subject: str, **data: Any) -> None:
    platform = platform_of(request)
    now = platform.clock.now()
    await audit.write_down(platform.store, caller(request), action, {subject: data}, now=now)


def _stored_id(asked: Asked[Any, Any, Any]) -> str:
    return once_id(asked.caller.account) if asked.path.webhook_id == "once" else asked.path.webhook_id


def _shown(endpoint: Endpoint) -> wire.Webhook:
    return from_record(
        wire.Webhook,
        endpoint,
        id=endpoint.id if endpoint.url else "once",
        kinds=list(endpoint.kinds),
        all_accounts=endpoint.hears_all,
    )


def _with_secret(endpoint: Endpoint, secret: str) -> wire.NewWebhook:
    return from_record(wire.NewWebhook, _shown(endpoint), secret=secret)


def _shown_delivery(delivery: outbox.Delivery, attempts: Sequence[outbox.Attempt]) -> wire.Delivery:
    return from_record(
        wire.Delivery,
        delivery,
        message_id=delivery.message,
        next_try_at=delivery.due_at,
        attempts=[from_record(wire.DeliveryAttempt, one) for one in attempts],
    )


BINDINGS = (
    bind(sandbox_operations.FOLLOW_EVENTS, follow_events),
    bind(operations.FOLLOW_ACCOUNT_EVENTS, follow_account),
    bind(operations.CREATE_WEBHOOK, create_webhook),
    bind(operations.LIST_WEBHOOKS, list_webhooks),
    bind(operations.GET_WEBHOOK, get_webhook),
    bind(operations.CHANGE_WEBHOOK, change_webhook),
    bind(operations.REMOVE_WEBHOOK, remove_webhook),
    bind(operations.ROTATE_WEBHOOK_SECRET, rotate_secret),
    bind(operations.TEST_WEBHOOK, test_webhook),
    bind(operations.LIST_WEBHOOK_DELIVERIES, deliveries),
    bind(operations.REDELIVER_WEBHOOK, redeliver),
)
