"""`client.keys` and `client.host`: what the platform's owner looks after, with asyncio.

`client.status`: how the platform is, and what the caller may still do. `client.webhooks`: be told of what
happens; `sdk.webhooks.verify` checks what comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.aio.line import AsyncNoun
from sandboxer.sdk.calls import keys, platform, sandboxes, webhooks

if TYPE_CHECKING:
    from sandboxer.sdk import models


class AsyncKeys(AsyncNoun):
    """Keys sign requests. A delegated key has a part of what its parent has."""

    async def list(self) -> Sequence[models.Key]:
        """Returns the keys of the account; the operator's answer has everybody's."""
        return (await self._line.send(keys.list_keys())).keys

    async def create(self, name: str, account: str, *, accepts_v1: bool = False) -> models.NewKey:
        """Makes a key. Its secret is shown at this moment only."""
        return await self._line.send(keys.create_key(name=name, account=account, accepts_v1=accepts_v1))

    async def revoke(self, public_key: str) -> None:
        """Ends a key and all that was delegated from it."""
        await self._line.send(keys.revoke_key(public_key))

    async def delegate(self, name: str, scopes: Sequence[str], **wish: Any) -> models.NewDelegatedKey:
        """Delegates to a child key. `wish` is `budget_sats`, `depth`, `slots`, `expires_at`, `caps`.

        Examples:
            >>> child = await client.keys.delegate("worker", ["sandboxes:create", "exec"], slots=1)
            >>> worker = AsyncSandboxer(public_key=child.public_key, secret_key=child.secret_key)
        """
        return await self._line.send(keys.cut_key(name=name, scopes=scopes, **wish))

    async def asking(self, code: str) -> models.ClientRequest:
        """Returns which program asks to act for you, by the code that your browser shows."""
        return await self._line.send(keys.show_client_request(code))

    async def allow(self, code: str, **wish: Any) -> models.ClientRequest:
        """Lets that program act for this account, by a delegated key of its own. `wish` is `name`,
        `budget_sats`, `scopes`, `slots`, `expires_at`.

        Examples:
            >>> asks = await client.keys.allow("BCDF-GHJK", slots=2)  # doctest: +SKIP
        """
        return await self._line.send(keys.allow_client(code, **wish))

    async def refuse(self, code: str) -> None:
        """Tells that program that it may not."""
        await self._line.send(keys.refuse_client(code))

    async def top_up(self, public_key: str, sats: int, *, id: str) -> models.DelegatedKey:
        """Gives a child key more sats; the same id gives once."""
        return await self._line.send(keys.top_up_key(public_key, sats=sats, id=id))

    async def tree(self) -> models.KeyNode:
        """Returns every key below this account, with its budget and spending."""
        return await self._line.send(keys.show_key_tree())

    async def regenerate(self, public_key: str) -> models.NewKey:
        """Makes a new secret; the old one ends at once."""
        return await self._line.send(keys.regenerate_key(public_key))

    async def issue_bearer(self, public_key: str) -> models.NewBearer:
        """Makes the token that stands for this key in one header; an older one ends at once."""
        return await self._line.send(keys.issue_bearer(public_key))

    async def end_bearer(self, public_key: str) -> None:
        """Ends the bearer token of a key; the key itself goes on signing."""
        await self._line.send(keys.end_bearer(public_key))

    async def suspend(self, public_key: str, *, why: str) -> None:
        """Keeps a key from acting until `unsuspend`; for the operator."""
        await self._line.send(keys.suspend_key(public_key, why=why))

    async def unsuspend(self, public_key: str) -> None:
        """Lets a suspended key act again; for the operator."""
        await self._line.send(keys.unsuspend_key(public_key))

    async def set_expiry(self, public_key: str, expires_at: str | None) -> None:
        """Sets the moment at which a key ends, or with None takes it away; for the operator."""
        await self._line.send(keys.set_key_expiry(public_key, expires_at=expires_at))

    async def validate(self, public_key: str) -> models.KeyReport:
        """Says whether a key would be let in, with which tier, and if not, why."""
        return await self._line.send(keys.validate_key(public_key=public_key))


class AsyncHostView(AsyncNoun):
    """This is the machine under the platform, for its operator."""

    async def report(self) -> models.Host:
        """Returns what the backends see of the machine, and how many sandboxes it has."""
        return await self._line.send(platform.inspect_host())

    async def stale(self) -> list[models.Stale]:
        """Lists what no record accounts for."""
        return (await self._line.send(platform.list_stale())).stale

    async def reap_stale(self) -> models.Reaped:
        """Removes what no record accounts for."""
        return await self._line.send(platform.reap_stale())

    async def garbage(self) -> models.Garbage:
        """Lists what nobody needs any more, and when it goes."""
        return await self._line.send(platform.list_garbage())

    async def collect_garbage(self, *, now: bool = False) -> models.Collected:
        """Removes what nobody needs; with `now` also what is still in its time of grace."""
        return await self._line.send(platform.collect_garbage(now=now))

    async def expire(self, *, apply: bool = False) -> models.Expired:
        """Lists what is past its time, and with `apply` ends it."""
        return await self._line.send(sandboxes.expire_sandboxes(apply=apply))


class AsyncStatus(AsyncNoun):
    """This says how the platform is, and what it has left."""

    async def health(self) -> models.Health:
        """Says whether the platform is well."""
        return await self._line.send(platform.health())

    async def cluster(self) -> models.Cluster:
        """Returns the hosts, what they can do, and how much is free."""
        return await self._line.send(platform.show_cluster())

    async def pools(self) -> models.Pools:
        """Returns the sandboxes that stand ready, and the storage of disks."""
        return await self._line.send(platform.list_pools())

    async def stats(self) -> models.Stats:
        """Counts one's own sandboxes, jobs, sessions and services by state; for the owner, everyone's."""
        return await self._line.send(platform.show_stats())

    async def limits(self) -> models.Limits:
        """Says what this key may still do."""
        return await self._line.send(platform.show_limits())


class AsyncWebhooks(AsyncNoun):
    """A webhook has events sent to a URL, signed."""

    async def create(
        self, url: str, *, kinds: Sequence[str] | None = None, all_accounts: bool = False
    ) -> models.NewWebhook:
        """Makes one; its secret is shown at this moment only. `all_accounts` is for the operator."""
        return await self._line.send(webhooks.create_webhook(url=url, kinds=kinds, all_accounts=all_accounts))

    async def list(self) -> Sequence[models.Webhook]:
        """Returns the webhooks of the account."""
        return (await self._line.send(webhooks.list_webhooks())).webhooks

    async def get(self, webhook_id: str) -> models.Webhook:
        """Returns one webhook, without its secret."""
        return await self._line.send(webhooks.get_webhook(webhook_id))

    async def change(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        kinds: Sequence[str] | None = None,
        enabled: bool | None = None,
    ) -> models.Webhook:
        """Changes address, kinds or whether it is on; what is left out stays."""
        return await self._line.send(
            webhooks.change_webhook(webhook_id, url=url, kinds=kinds, enabled=enabled)
        )

    async def remove(self, webhook_id: str) -> None:
        """Ends a webhook; what waits to be sent is dropped."""
        await self._line.send(webhooks.remove_webhook(webhook_id))

    async def rotate_secret(self, webhook_id: str, *, overlap: str = "24h") -> models.NewWebhook:
        """Makes a new secret; `once` as id names the secret of messages that bring their own URL."""
        return await self._line.send(webhooks.rotate_webhook_secret(webhook_id, overlap=overlap))

    async def test(self, webhook_id: str) -> models.Delivery:
        """Sends a message now, and says how that went."""
        return await self._line.send(webhooks.test_webhook(webhook_id))

    async def deliveries(
        self,
        webhook_id: str,
        *,
        state: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> models.DeliveryPage:
        """Returns one page of what was sent, newest first."""
        return await self._line.send(
            webhooks.list_webhook_deliveries(webhook_id, state=state, cursor=cursor, limit=limit)
        )

    async def redeliver(self, webhook_id: str, delivery_id: str) -> models.Delivery:
        """Sends one message again, with the same id."""
        return await self._line.send(webhooks.redeliver_webhook(webhook_id, delivery_id))
