"""`client.ssh`: public keys that open sandboxes by SSH, blocking."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.routes import ssh as routes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire import ssh as wire


class Ssh:
    def __init__(self, line: Line) -> None:
        self._line = line

    def gateway(self) -> wire.SshGateway:
        """Where to come in: `ssh sbx_…@host -p port`."""
        return self._line.do(routes.gateway())

    def add_key(
        self,
        public_key: str,
        *,
        name: str | None = None,
        sandbox_id: str | None = None,
        ttl: str | None = None,
    ) -> wire.SshKey:
        """For one sandbox, or without `sandbox_id` for every one of the account's."""
        wanted: dict[str, object] = {"public_key": public_key, "name": name}
        return self._line.do(routes.add(wanted | {"sandbox_id": sandbox_id, "ttl": ttl}))

    def keys(self) -> Sequence[wire.SshKey]:
        return (self._line.do(routes.listed())).ssh_keys

    def revoke_key(self, key_id: str) -> None:
        """What is open by it ends within a second."""
        self._line.do(routes.revoke(key_id))
