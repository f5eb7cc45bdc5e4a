"""What leads in and out of sandboxes, with asyncio.

`sandbox.previews` opens a port inside by a link. `client.ssh` keeps the public keys that open sandboxes by
SSH. `client.secrets` and `sandbox.secrets` take values that never come back. `sandbox.egress` says what one
sandbox may reach outside, `client.egress` what all sandboxes of the account may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from sandboxer.sdk.aio.line import AsyncNoun, AsyncNounInside
from sandboxer.sdk.call import new_idempotency_key
from sandboxer.sdk.calls import egress, previews, secrets, ssh

if TYPE_CHECKING:
    from sandboxer.sdk import models


class AsyncPreviews(AsyncNounInside):
    """A preview is a link that opens a port inside one sandbox."""

    async def create(
        self,
        port: int,
        *,
        ttl: str | None = None,
        public: bool | None = None,
        one_time: bool | None = None,
        wakes: bool | None = None,
        hold_s: int | None = None,
        inspect: Literal["refuse", "warn", "no"] | None = None,
    ) -> models.NewPreview:
        """Opens a port by a link: `url` is for a browser; a program sends `token` as X-Sandboxer-Preview.

        With `inspect="refuse"` it does not where everyone inside may read secrets; see `exposure`.

        Examples:
            >>> preview = await sandbox.previews.create(8000, ttl="1h")
            >>> print(preview.url)
        """
        return await self._line.send(
            previews.create_preview(
                self._id,
                port=port,
                ttl=ttl,
                public=public,
                one_time=one_time,
                wakes=wakes,
                hold_s=hold_s,
                inspect=inspect,
            )
        )

    async def exposure(self) -> models.Exposure:
        """Looks for secrets and git folders that a program inside might show to whoever reaches it.

        Examples:
            >>> for found in (await sandbox.previews.exposure()).findings:
            ...     print(found.kind, found.path)
        """
        return await self._line.send(previews.get_exposure(self._id))

    async def list(self) -> Sequence[models.Preview]:
        """Returns the links that are open, newest first; their tokens are not shown again."""
        return (await self._line.send(previews.list_previews(self._id))).previews

    async def revoke(self, preview_id: str) -> None:
        """Closes a link again, for whoever has it open too."""
        await self._line.send(previews.revoke_preview(self._id, preview_id))


class AsyncSsh(AsyncNoun):
    """Each key opens sandboxes of the account by plain SSH."""

    async def gateway(self) -> models.SshGateway:
        """Says where to come in: `ssh sbx_…@host -p port`."""
        return await self._line.send(ssh.get_ssh_gateway())

    async def add_key(
        self,
        public_key: str,
        *,
        name: str | None = None,
        sandbox_id: str | None = None,
        ttl: str | None = None,
    ) -> models.SshKey:
        """Lets a key in: to one sandbox, or without `sandbox_id` to every one of the account's."""
        return await self._line.send(
            ssh.add_ssh_key(
                public_key=public_key,
                name=name,
                sandbox_id=sandbox_id,
                ttl=ttl,
                idempotency_key=new_idempotency_key(),
            )
        )

    async def keys(self) -> Sequence[models.SshKey]:
        """Returns the SSH keys of the account."""
        return (await self._line.send(ssh.list_ssh_keys())).ssh_keys

    async def revoke_key(self, key_id: str) -> None:
        """Ends what is open by the key within a second."""
        await self._line.send(ssh.revoke_ssh_key(key_id))


class AsyncSecrets(AsyncNoun):
    """A secret is kept by the account, sealed, and put into sandboxes by name."""

    async def set(self, name: str, value: str) -> models.Secret:
        """Keeps a value under a name. It is sealed, and never comes back."""
        return await self._line.send(secrets.put_secret(name, value=value))

    async def get(self, name: str) -> models.Secret:
        """Says how long a secret is and when it was set, not what it is."""
        return await self._line.send(secrets.get_secret(name))

    async def list(self) -> Sequence[models.Secret]:
        """Returns the names of the account's secrets."""
        return (await self._line.send(secrets.list_secrets())).secrets

    async def remove(self, name: str) -> None:
        """Forgets a secret. Sandboxes that have it keep it until it is wiped there."""
        await self._line.send(secrets.remove_secret(name))


class AsyncSandboxSecrets(AsyncNounInside):
    """These secrets are inside one sandbox now."""

    async def inject(
        self, *names: str, values: Mapping[str, str] | None = None, env: bool = True, files: bool = False
    ) -> Sequence[models.InjectedSecret]:
        """Puts in `names` of the account and `values` for it alone, as variables or as /run/secrets/NAME."""
        return (
            await self._line.send(
                secrets.inject_secrets(self._id, names=names, values=values, env=env, files=files)
            )
        ).secrets

    async def list(self) -> Sequence[models.InjectedSecret]:
        """Returns the names of what was put into this sandbox."""
        return (await self._line.send(secrets.list_injected_secrets(self._id))).secrets

    async def wipe(self, name: str | None = None) -> models.WipedSecrets:
        """Wipes all, or the one that is named."""
        if name is None:
            return await self._line.send(secrets.wipe_secrets(self._id))
        return await self._line.send(secrets.wipe_secret(self._id, name))


class AsyncEgress(AsyncNounInside):
    """These rules say what one sandbox may reach outside."""

    async def show(self) -> models.Egress:
        """Returns the policy that holds now, with its version."""
        return await self._line.send(egress.get_egress(self._id))

    async def replace(
        self,
        *,
        default: str | None = None,
        rules: Sequence[Mapping[str, object]] = (),
        secrets: Sequence[Mapping[str, object]] = (),
        limits: Mapping[str, object] | None = None,
        version: int | None = None,
    ) -> models.Egress:
        """Replaces the whole policy. It holds at once."""
        return await self._line.send(
            egress.replace_egress(
                self._id, default=default, rules=rules, secrets=secrets, limits=limits, version=version
            )
        )

    async def allow(self, host: str, **more: object) -> models.Egress:
        """Adds a rule that lets a host pass; `more` is `ports`, `methods`, `path`, `note`.

        Examples:
            >>> await sandbox.egress.allow("pypi.org", methods=["GET"])
        """
        rule = {"action": "allow", "host": host, **more}
        return await self._line.send(egress.change_egress(self._id, add=[rule]))

    async def deny(self, host: str, **more: object) -> models.Egress:
        """Adds a rule that refuses a host; it wins over every allow."""
        rule = {"action": "deny", "host": host, **more}
        return await self._line.send(egress.change_egress(self._id, add=[rule]))

    async def remove(self, *rules: Mapping[str, object]) -> models.Egress:
        """Takes out rules that are exactly these."""
        return await self._line.send(egress.change_egress(self._id, remove=rules))

    async def explain(self, url: str, *, method: str = "GET") -> models.EgressExplained:
        """Says whether a request would pass, and which rule decides."""
        return await self._line.send(egress.explain_egress(self._id, url=url, method=method))

    async def denials(self) -> Sequence[models.EgressDenial]:
        """Returns what was refused lately; the same thing over and over is one entry."""
        return (await self._line.send(egress.list_egress_denials(self._id))).denials


class AsyncAccountEgress(AsyncNoun):
    """These rules hold in all sandboxes of the account, beside each one's own."""

    async def show(self) -> models.AccountEgress:
        """Returns the account's rules, with their version."""
        return await self._line.send(egress.get_account_egress())

    async def replace(
        self, rules: Sequence[Mapping[str, object]], *, version: int | None = None
    ) -> models.AccountEgress:
        """Replaces all of them. They hold at once."""
        return await self._line.send(egress.replace_account_egress(rules=rules, version=version))

    async def allow(self, host: str, **more: object) -> models.AccountEgress:
        """Adds a rule that lets a host pass; `more` is `ports`, `methods`, `path`, `note`."""
        rule = {"action": "allow", "host": host, **more}
        return await self._line.send(egress.change_account_egress(add=[rule]))

    async def deny(self, host: str, **more: object) -> models.AccountEgress:
        """Adds a rule that refuses a host; it wins over every allow."""
        rule = {"action": "deny", "host": host, **more}
        return await self._line.send(egress.change_account_egress(add=[rule]))

    async def remove(self, *rules: Mapping[str, object]) -> models.AccountEgress:
        """Takes out rules that are exactly these."""
        return await self._line.send(egress.change_account_egress(remove=rules))

    async def explain(self, url: str, *, method: str = "GET") -> models.EgressExplained:
        """Says what these rules alone decide."""
        return await self._line.send(egress.explain_account_egress(url=url, method=method))
