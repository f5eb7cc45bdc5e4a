"""`client.webhooks`: be told of what happens, with asyncio. `sdk.webhooks.verify` checks what comes."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.calls import webhooks as calls
from sandboxer.wire import webhooks as wire


class AsyncWebhooks:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def create(
        self, url: str, *, kinds: Sequence[str] | None = None, all_accounts: bool = False
    ) -> wire.NewWebhook:
        """The only moment at which the secret is shown; `all_accounts` is for the operator."""
        return await self._line.send(calls.create_webhook(url=url, kinds=kinds, all_accounts=all_accounts))

    async def list(self) -> Sequence[wire.Webhook]:
        return (await self._line.send(calls.list_webhooks())).webhooks

    async def get(self, webhook_id: str) -> wire.Webhook:
        return await self._line.send(calls.get_webhook(webhook_id))

    async def change(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        kinds: Sequence[str] | None = None,
        enabled: bool | None = None,
    ) -> wire.Webhook:
        return await self._line.send(calls.change_webhook(webhook_id, url=url, kinds=kinds, enabled=enabled))

    async def remove(self, webhook_id: str) -> None:
        await self._line.send(calls.remove_webhook(webhook_id))

    async def rotate_secret(self, webhook_id: str, *, overlap: str = "24h") -> wire.NewWebhook:
        """`once` names the secret of messages that bring their own URL."""
        return await self._line.send(calls.rotate_webhook_secret(webhook_id, overlap=overlap))

    async def test(self, webhook_id: str) -> wire.Delivery:
        """Send a message now, and say how that went."""
        return await self._line.send(calls.test_webhook(webhook_id))

    async def deliveries(
        self,
        webhook_id: str,
        *,
        state: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> wire.DeliveryPage:
        """One page, newest first."""
        return await self._line.send(
            calls.list_webhook_deliveries(webhook_id, state=state, cursor=cursor, limit=limit)
        )

    async def redeliver(self, webhook_id: str, delivery_id: str) -> wire.Delivery:
        return await self._line.send(calls.redeliver_webhook(webhook_id, delivery_id))
