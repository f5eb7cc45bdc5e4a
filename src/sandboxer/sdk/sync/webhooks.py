# Written by scripts/generate-sync from sdk/aio/webhooks.py. Do not edit.
"""`client.webhooks`: be told of what happens, blocking. `sdk.webhooks.verify` checks what comes."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.calls import webhooks as calls
from sandboxer.sdk.sync.line import Line
from sandboxer.wire import webhooks as wire


class Webhooks:
    def __init__(self, line: Line) -> None:
        self._line = line

    def create(
        self, url: str, *, kinds: Sequence[str] | None = None, all_accounts: bool = False
    ) -> wire.NewWebhook:
        """The only moment at which the secret is shown; `all_accounts` is for the operator."""
        return self._line.send(calls.create_webhook(url=url, kinds=kinds, all_accounts=all_accounts))

    def list(self) -> Sequence[wire.Webhook]:
        return self._line.send(calls.list_webhooks()).webhooks

    def get(self, webhook_id: str) -> wire.Webhook:
        return self._line.send(calls.get_webhook(webhook_id))

    def change(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        kinds: Sequence[str] | None = None,
        enabled: bool | None = None,
    ) -> wire.Webhook:
        return self._line.send(calls.change_webhook(webhook_id, url=url, kinds=kinds, enabled=enabled))

    def remove(self, webhook_id: str) -> None:
        self._line.send(calls.remove_webhook(webhook_id))

    def rotate_secret(self, webhook_id: str, *, overlap: str = "24h") -> wire.NewWebhook:
        """`once` names the secret of messages that bring their own URL."""
        return self._line.send(calls.rotate_webhook_secret(webhook_id, overlap=overlap))

    def test(self, webhook_id: str) -> wire.Delivery:
        """Send a message now, and say how that went."""
        return self._line.send(calls.test_webhook(webhook_id))

    def deliveries(
        self,
        webhook_id: str,
        *,
        state: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> wire.DeliveryPage:
        """One page, newest first."""
        return self._line.send(
            calls.list_webhook_deliveries(webhook_id, state=state, cursor=cursor, limit=limit)
        )

    def redeliver(self, webhook_id: str, delivery_id: str) -> wire.Delivery:
        return self._line.send(calls.redeliver_webhook(webhook_id, delivery_id))
