# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandboxer.sdk.call import NOTHING, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.webhooks import Delivery, DeliveryPage, NewWebhook, Webhook, WebhookList


def create_webhook(
    *,
    url: str,
    kinds: Sequence[str] | None = None,
    all_accounts: bool | None = None,
    idempotency_key: str | None = None,
) -> Call[NewWebhook]:
    """Make a webhook: signed requests tell you what happens; its secret is shown once."""
    return Call(
        operation="createWebhook",
        method="POST",
        target="/v1/webhooks",
        answer="sandboxer.wire.webhooks:NewWebhook",
        body=json_body({"url": url}, kinds=kinds, all_accounts=all_accounts),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
    )


def list_webhooks() -> Call[WebhookList]:
    """List this account's webhooks."""
    return Call(
        operation="listWebhooks",
        method="GET",
        target="/v1/webhooks",
        answer="sandboxer.wire.webhooks:WebhookList",
    )


def get_webhook(webhook_id: str) -> Call[Webhook]:
    """Show a webhook."""
    return Call(
        operation="getWebhook",
        method="GET",
        target=target_of("/v1/webhooks/{}", webhook_id),
        answer="sandboxer.wire.webhooks:Webhook",
    )


def change_webhook(
    webhook_id: str,
    *,
    url: str | None = None,
    kinds: Sequence[str] | None = None,
    enabled: bool | None = None,
) -> Call[Webhook]:
    """Change where a webhook goes, which events it gets, or switch it off and on."""
    return Call(
        operation="changeWebhook",
        method="PATCH",
        target=target_of("/v1/webhooks/{}", webhook_id),
        answer="sandboxer.wire.webhooks:Webhook",
        body=json_body({}, url=url, kinds=kinds, enabled=enabled),
        headers=headers_of(content_type="application/json"),
    )


def remove_webhook(webhook_id: str) -> Call[None]:
    """Remove a webhook; what waits is not sent."""
    return Call(
        operation="removeWebhook",
        method="DELETE",
        target=target_of("/v1/webhooks/{}", webhook_id),
        answer=NOTHING,
    )


def rotate_webhook_secret(webhook_id: str, *, overlap: str | None = None) -> Call[NewWebhook]:
    """Give a webhook a new secret, shown once; the old one signs beside it for a while."""
    return Call(
        operation="rotateWebhookSecret",
        method="POST",
        target=target_of("/v1/webhooks/{}/rotate-secret", webhook_id),
        answer="sandboxer.wire.webhooks:NewWebhook",
        body=json_body({}, overlap=overlap),
        headers=headers_of(content_type="application/json"),
    )


def test_webhook(webhook_id: str) -> Call[Delivery]:
    """Send a test message now, and say how it went."""
    return Call(
        operation="testWebhook",
        method="POST",
        target=target_of("/v1/webhooks/{}/test", webhook_id),
        answer="sandboxer.wire.webhooks:Delivery",
    )


def list_webhook_deliveries(
    webhook_id: str, *, cursor: str | None = None, limit: int | None = None, state: str | None = None
) -> Call[DeliveryPage]:
    """List what was sent and what waits, newest first, each with its tries."""
    return Call(
        operation="listWebhookDeliveries",
        method="GET",
        target=target_of("/v1/webhooks/{}/deliveries", webhook_id, cursor=cursor, limit=limit, state=state),
        answer="sandboxer.wire.webhooks:DeliveryPage",
    )


def redeliver_webhook(webhook_id: str, delivery_id: str) -> Call[Delivery]:
    """Send a delivery again now, whatever became of it; with the same webhook-id."""
    return Call(
        operation="redeliverWebhook",
        method="POST",
        target=target_of("/v1/webhooks/{}/deliveries/{}/redeliver", webhook_id, delivery_id),
        answer="sandboxer.wire.webhooks:Delivery",
    )
