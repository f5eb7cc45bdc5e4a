# Written by scripts/generate-sync from sdk/aio/access.py. Do not edit.
"""What leads in and out of sandboxes, blocking.

`sandbox.previews` opens a port inside by a link. `client.ssh` keeps the public keys that open sandboxes by
SSH. `client.secrets` and `sandbox.secrets` take values that never come back. `sandbox.egress` says what one
sandbox may reach outside, `client.egress` what all sandboxes of the account may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sandboxer.sdk.call import new_idempotency_key
from sandboxer.sdk.calls import egress, previews, secrets, ssh
from sandboxer.sdk.sync.line import Line

if TYPE_CHECKING:
    from sandboxer.sdk import models


class Previews:
    """The previews of one sandbox."""

    def __init__(self, line: Line, sandbox_id: str) -> None:
        self._line = line
        self._sandbox_id = sandbox_id

    def create(
        self,
        port: int,
        *,
        ttl: str | None = None,
        public: bool | None = None,
        one_time: bool | None = None,
        wakes: bool | None = None,
        hold_s: int | None = None,
    ) -> models.NewPreview:
        """`url` opens the port in a browser; `token` goes into X-Sandboxer-Preview."""
        call = previews.create_preview(
            self._sandbox_id,
            port=port,
            ttl=ttl,
            public=public,
            one_time=one_time,
            wakes=wakes,
            hold_s=hold_s,
        )
        return self._line.send(call)

    def list(self) -> Sequence[models.Preview]:
        return self._line.send(previews.list_previews(self._sandbox_id)).previews

    def revoke(self, preview_id: str) -> None:
        self._line.send(previews.revoke_preview(self._sandbox_id, preview_id))


class Ssh:
    """The SSH keys of the account."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def gateway(self) -> models.SshGateway:
        """Says where to come in: `ssh sbx_…@host -p port`."""
        return self._line.send(ssh.get_ssh_gateway())

    def add_key(
        self,
        public_key: str,
        *,
        name: str | None = None,
        sandbox_id: str | None = None,
        ttl: str | None = None,
    ) -> models.SshKey:
        """The key opens one sandbox, or every one of the account's without `sandbox_id`."""
        call = ssh.add_ssh_key(
            public_key=public_key,
            name=name,
            sandbox_id=sandbox_id,
            ttl=ttl,
            idempotency_key=new_idempotency_key(),
        )
        return self._line.send(call)

    def keys(self) -> Sequence[models.SshKey]:
        return self._line.send(ssh.list_ssh_keys()).ssh_keys

    def revoke_key(self, key_id: str) -> None:
        """Ends what is open by the key within a second."""
        self._line.send(ssh.revoke_ssh_key(key_id))


class Secrets:
    """The secrets of the account."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def set(self, name: str, value: str) -> models.Secret:
        return self._line.send(secrets.put_secret(name, value=value))

    def get(self, name: str) -> models.Secret:
        return self._line.send(secrets.get_secret(name))

    def list(self) -> Sequence[models.Secret]:
        return self._line.send(secrets.list_secrets()).secrets

    def remove(self, name: str) -> None:
        """Sandboxes that have it keep it until it is wiped there."""
        self._line.send(secrets.remove_secret(name))


class SandboxSecrets:
    """The secrets in one sandbox."""

    def __init__(self, line: Line, sandbox_id: str) -> None:
        self._line = line
        self._sandbox_id = sandbox_id

    def inject(
        self, *names: str, values: Mapping[str, str] | None = None, env: bool = True, files: bool = False
    ) -> Sequence[models.InjectedSecret]:
        """`names` of the account, `values` for this sandbox alone; as variables and/or /run/secrets/NAME."""
        call = secrets.inject_secrets(self._sandbox_id, names=names, values=values, env=env, files=files)
        return self._line.send(call).secrets

    def list(self) -> Sequence[models.InjectedSecret]:
        return self._line.send(secrets.list_injected_secrets(self._sandbox_id)).secrets

    def wipe(self, name: str | None = None) -> models.WipedSecrets:
        """Wipes all, or the one that is named."""
        if name is None:
            return self._line.send(secrets.wipe_secrets(self._sandbox_id))
        return self._line.send(secrets.wipe_secret(self._sandbox_id, name))


class Egress:
    """The rules of one sandbox."""

    def __init__(self, line: Line, sandbox_id: str) -> None:
        self._line = line
        self._sandbox_id = sandbox_id

    def show(self) -> models.Egress:
        return self._line.send(egress.get_egress(self._sandbox_id))

    def replace(
        self,
        *,
        default: str | None = None,
        rules: Sequence[Mapping[str, object]] = (),
        secrets: Sequence[Mapping[str, object]] = (),
        limits: Mapping[str, object] | None = None,
        version: int | None = None,
    ) -> models.Egress:
        """Replaces the whole policy. It holds at once."""
        call = egress.replace_egress(
            self._sandbox_id, default=default, rules=rules, secrets=secrets, limits=limits, version=version
        )
        return self._line.send(call)

    def allow(self, host: str, **more: object) -> models.Egress:
        """`more` is `ports`, `methods`, `path`, `note`."""
        rule = {"action": "allow", "host": host, **more}
        return self._line.send(egress.change_egress(self._sandbox_id, add=[rule]))

    def deny(self, host: str, **more: object) -> models.Egress:
        """A deny wins over every allow."""
        rule = {"action": "deny", "host": host, **more}
        return self._line.send(egress.change_egress(self._sandbox_id, add=[rule]))

    def remove(self, *rules: Mapping[str, object]) -> models.Egress:
        return self._line.send(egress.change_egress(self._sandbox_id, remove=rules))

    def explain(self, url: str, *, method: str = "GET") -> models.EgressExplained:
        return self._line.send(egress.explain_egress(self._sandbox_id, url=url, method=method))

    def denials(self) -> Sequence[models.EgressDenial]:
        return self._line.send(egress.list_egress_denials(self._sandbox_id)).denials


class AccountEgress:
    """Rules that hold in all sandboxes of the account, beside each one's own."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def show(self) -> models.AccountEgress:
        return self._line.send(egress.get_account_egress())

    def replace(
        self, rules: Sequence[Mapping[str, object]], *, version: int | None = None
    ) -> models.AccountEgress:
        """Replaces all of them. They hold at once."""
        return self._line.send(egress.replace_account_egress(rules=rules, version=version))

    def allow(self, host: str, **more: object) -> models.AccountEgress:
        """`more` is `ports`, `methods`, `path`, `note`."""
        rule = {"action": "allow", "host": host, **more}
        return self._line.send(egress.change_account_egress(add=[rule]))

    def deny(self, host: str, **more: object) -> models.AccountEgress:
        """A deny wins over every allow."""
        rule = {"action": "deny", "host": host, **more}
        return self._line.send(egress.change_account_egress(add=[rule]))

    def remove(self, *rules: Mapping[str, object]) -> models.AccountEgress:
        return self._line.send(egress.change_account_egress(remove=rules))

    def explain(self, url: str, *, method: str = "GET") -> models.EgressExplained:
        """Says what these rules alone decide."""
        return self._line.send(egress.explain_account_egress(url=url, method=method))
