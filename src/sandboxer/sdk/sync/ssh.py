# Written by scripts/generate-sync from sdk/aio/ssh.py. Do not edit.
"""`client.ssh`: public keys that open sandboxes by SSH, blocking."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.call import new_idempotency_key
from sandboxer.sdk.calls import ssh as calls
from sandboxer.sdk.sync.line import Line
from sandboxer.wire import ssh as wire


class Ssh:
    def __init__(self, line: Line) -> None:
        self._line = line

    def gateway(self) -> wire.SshGateway:
        """Where to come in: `ssh sbx_…@host -p port`."""
        return self._line.send(calls.get_ssh_gateway())

    def add_key(
        self,
        public_key: str,
        *,
        name: str | None = None,
        sandbox_id: str | None = None,
        ttl: str | None = None,
    ) -> wire.SshKey:
        """For one sandbox, or without `sandbox_id` for every one of the account's."""
        call = calls.add_ssh_key(
            public_key=public_key,
            name=name,
            sandbox_id=sandbox_id,
            ttl=ttl,
            idempotency_key=new_idempotency_key(),
        )
        return self._line.send(call)

    def keys(self) -> Sequence[wire.SshKey]:
        return self._line.send(calls.list_ssh_keys()).ssh_keys

    def revoke_key(self, key_id: str) -> None:
        """What is open by it ends within a second."""
        self._line.send(calls.revoke_ssh_key(key_id))
