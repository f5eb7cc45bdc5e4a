"""Webhooks: who is told, and how each message fared."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.calls import Call, json_body, target
from sandboxer.sdk.routes.reading import model, nothing
from sandboxer.wire import webhooks as wire


def create(url: str, *, kinds: Sequence[str] | None, all_accounts: bool) -> Call[wire.NewWebhook]:
    wanted: dict[str, object] = {"url": url, "all_accounts": all_accounts}
    body, headers = json_body(wanted if kinds is None else {**wanted, "kinds": [*kinds]})
    return Call(method="POST", target="/v1/webhooks", body=body, headers=headers, read=model(wire.NewWebhook))


def listed() -> Call[wire.WebhookList]:
    return Call(method="GET", target="/v1/webhooks", read=model(wire.WebhookList))


def get(webhook_id: str) -> Call[wire.Webhook]:
    return Call(method="GET", target=target("/v1/webhooks/{}", webhook_id), read=model(wire.Webhook))


def change(
    webhook_id: str, *, url: str | None, kinds: Sequence[str] | None, enabled: bool | None
) -> Call[wire.Webhook]:
    wanted = {"url": url, "kinds": None if kinds is None else [*kinds], "enabled": enabled}
    body, headers = json_body({name: value for name, value in wanted.items() if value is not None})
    where = target("/v1/webhooks/{}", webhook_id)
    return Call(method="PATCH", target=where, body=body, headers=headers, read=model(wire.Webhook))


def remove(webhook_id: str) -> Call[None]:
    return Call(method="DELETE", target=target("/v1/webhooks/{}", webhook_id), read=nothing)


def rotate(webhook_id: str, *, overlap: str) -> Call[wire.NewWebhook]:
    body, headers = json_body({"overlap": overlap})
    where = target("/v1/webhooks/{}/rotate-secret", webhook_id)
    return Call(method="POST", target=where, body=body, headers=headers, read=model(wire.NewWebhook))


def test(webhook_id: str) -> Call[wire.Delivery]:
    where = target("/v1/webhooks/{}/test", webhook_id)
    return Call(method="POST", target=where, read=model(wire.Delivery))


def deliveries(
    webhook_id: str, *, state: str | None, cursor: str | None, limit: int | None
) -> Call[wire.DeliveryPage]:
    query = {"state": state, "cursor": cursor, "limit": limit}
    where = target("/v1/webhooks/{}/deliveries", webhook_id, query=query)
    return Call(method="GET", target=where, read=model(wire.DeliveryPage))


def redeliver(webhook_id: str, delivery_id: str) -> Call[wire.Delivery]:
    where = target("/v1/webhooks/{}/deliveries/{}/redeliver", webhook_id, delivery_id)
    return Call(method="POST", target=where, read=model(wire.Delivery))
