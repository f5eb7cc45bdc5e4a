# Written by scripts/generate-sync from sdk/aio/platform.py. Do not edit.
"""`client.keys` and `client.host`: what the platform's owner looks after, blocking.

`client.status`: how the platform is, and what the caller may still do. `client.webhooks`: be told of what
happens; `sdk.webhooks.verify` checks what comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.calls import keys, platform, sandboxes, webhooks
from sandboxer.sdk.sync.line import Noun

if TYPE_CHECKING:
    from sandboxer.sdk import models


class Keys(Noun):
    """Keys sign requests. A delegated key has a part of what its parent has."""

    def list(self) -> Sequence[models.Key]:
        """Returns the keys of the account; the operator's answer has everybody's."""
        return self._line.send(keys.list_keys()).keys

    def create(self, name: str, account: str, *, accepts_v1: bool = False) -> models.NewKey:
        """Makes a key. Its secret is shown at this moment only."""
        return self._line.send(keys.create_key(name=name, account=account, accepts_v1=accepts_v1))

    def revoke(self, public_key: str) -> None:
        """Ends a key and all that was delegated from it."""
        self._line.send(keys.revoke_key(public_key))

    def delegate(self, name: str, scopes: Sequence[str], **wish: Any) -> models.NewDelegatedKey:
        """Delegates to a child key. `wish` is `budget_sats`, `depth`, `slots`, `expires_at`, `caps`.

        Examples:
            >>> child = client.keys.delegate("worker", ["sandboxes:create", "exec"], slots=1)
            >>> worker = Sandboxer(public_key=child.public_key, secret_key=child.secret_key)
        """
        return self._line.send(keys.cut_key(name=name, scopes=scopes, **wish))

    def asking(self, code: str) -> models.ClientRequest:
        """Returns which program asks to act for you, by the code that your browser shows."""
        return self._line.send(keys.show_client_request(code))

    def allow(self, code: str, **wish: Any) -> models.ClientRequest:
        """Lets that program act for this account, by a delegated key of its own. `wish` is `name`,
        `budget_sats`, `scopes`, `slots`, `expires_at`.

        Examples:
            >>> asks = client.keys.allow("BCDF-GHJK", slots=2)  # doctest: +SKIP
        """
        return self._line.send(keys.allow_client(code, **wish))

    def refuse(self, code: str) -> None:
        """Tells that program that it may not."""
        self._line.send(keys.refuse_client(code))

    def top_up(self, public_key: str, sats: int, *, id: str) -> models.DelegatedKey:
        """Gives a child key more sats; the same id gives once."""
        return self._line.send(keys.top_up_key(public_key, sats=sats, id=id))

    def tree(self) -> models.KeyNode:
        """Returns every key below this account, with its budget and spending."""
        return self._line.send(keys.show_key_tree())

    def regenerate(self, public_key: str) -> models.NewKey:
        """Makes a new secret; the old one ends at once."""
        return self._line.send(keys.regenerate_key(public_key))

    def issue_bearer(self, public_key: str) -> models.NewBearer:
        """Makes the token that stands for this key in one header; an older one ends at once."""
        return self._line.send(keys.issue_bearer(public_key))

    def end_bearer(self, public_key: str) -> None:
        """Ends the bearer token of a key; the key itself goes on signing."""
        self._line.send(keys.end_bearer(public_key))

    def suspend(self, public_key: str, *, why: str) -> None:
        """Keeps a key from acting until `unsuspend`; for the operator."""
        self._line.send(keys.suspend_key(public_key, why=why))

    def unsuspend(self, public_key: str) -> None:
        """Lets a suspended key act again; for the operator."""
        self._line.send(keys.unsuspend_key(public_key))

    def set_expiry(self, public_key: str, expires_at: str | None) -> None:
        """Sets the moment at which a key ends, or with None takes it away; for the operator."""
        self._line.send(keys.set_key_expiry(public_key, expires_at=expires_at))

    def validate(self, public_key: str) -> models.KeyReport:
        """Says whether a key would be let in, with which tier, and if not, why."""
        return self._line.send(keys.validate_key(public_key=public_key))


class HostView(Noun):
    """This is the machine under the platform, for its operator."""

    def report(self) -> models.Host:
        """Returns what the backends see of the machine, and how many sandboxes it has."""
        return self._line.send(platform.inspect_host())

    def stale(self) -> list[models.Stale]:
        """Lists what no record accounts for."""
        return self._line.send(platform.list_stale()).stale

    def reap_stale(self) -> models.Reaped:
        """Removes what no record accounts for."""
        return self._line.send(platform.reap_stale())

    def garbage(self) -> models.Garbage:
        """Lists what nobody needs any more, and when it goes."""
        return self._line.send(platform.list_garbage())

    def collect_garbage(self, *, now: bool = False) -> models.Collected:
        """Removes what nobody needs; with `now` also what is still in its time of grace."""
        return self._line.send(platform.collect_garbage(now=now))

    def expire(self, *, apply: bool = False) -> models.Expired:
        """Lists what is past its time, and with `apply` ends it."""
        return self._line.send(sandboxes.expire_sandboxes(apply=apply))


class Status(Noun):
    """This says how the platform is, and what it has left."""

    def health(self) -> models.Health:
        """Says whether the platform is well."""
        return self._line.send(platform.health())

    def cluster(self) -> models.Cluster:
        """Returns the hosts, what they can do, and how much is free."""
        return self._line.send(platform.show_cluster())

    def pools(self) -> models.Pools:
        """Returns the sandboxes that stand ready, and the storage of disks."""
        return self._line.send(platform.list_pools())

    def stats(self) -> models.Stats:
        """Counts one's own sandboxes, jobs, sessions and services by state; for the owner, everyone's."""
        return self._line.send(platform.show_stats())

    def limits(self) -> models.Limits:
        """Says what this key may still do."""
        return self._line.send(platform.show_limits())


class Webhooks(Noun):
    """A webhook has events sent to a URL, signed."""

    def create(
        self, url: str, *, kinds: Sequence[str] | None = None, all_accounts: bool = False
    ) -> models.NewWebhook:
        """Makes one; its secret is shown at this moment only. `all_accounts` is for the operator."""
        return self._line.send(webhooks.create_webhook(url=url, kinds=kinds, all_accounts=all_accounts))

    def list(self) -> Sequence[models.Webhook]:
        """Returns the webhooks of the account."""
        return self._line.send(webhooks.list_webhooks()).webhooks

    def get(self, webhook_id: str) -> models.Webhook:
        """Returns one webhook, without its secret."""
        return self._line.send(webhooks.get_webhook(webhook_id))

    def change(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        kinds: Sequence[str] | None = None,
        enabled: bool | None = None,
    ) -> models.Webhook:
        """Changes address, kinds or whether it is on; what is left out stays."""
        return self._line.send(webhooks.change_webhook(webhook_id, url=url, kinds=kinds, enabled=enabled))

    def remove(self, webhook_id: str) -> None:
        """Ends a webhook; what waits to be sent is dropped."""
        self._line.send(webhooks.remove_webhook(webhook_id))

    def rotate_secret(self, webhook_id: str, *, overlap: str = "24h") -> models.NewWebhook:
        """Makes a new secret; `once` as id names the secret of messages that bring their own URL."""
        return self._line.send(webhooks.rotate_webhook_secret(webhook_id, overlap=overlap))

    def test(self, webhook_id: str) -> models.Delivery:
        """Sends a message now, and says how that went."""
        return self._line.send(webhooks.test_webhook(webhook_id))

    def deliveries(
        self,
        webhook_id: str,
        *,
        state: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> models.DeliveryPage:
        """Returns one page of what was sent, newest first."""
        return self._line.send(
            webhooks.list_webhook_deliveries(webhook_id, state=state, cursor=cursor, limit=limit)
        )

    def redeliver(self, webhook_id: str, delivery_id: str) -> models.Delivery:
        """Sends one message again, with the same id."""
        return self._line.send(webhooks.redeliver_webhook(webhook_id, delivery_id))
