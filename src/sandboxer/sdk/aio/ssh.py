"""`client.ssh`: public keys that open sandboxes by SSH, with asyncio."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.routes import ssh as routes
from sandboxer.wire import ssh as wire


class AsyncSsh:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def gateway(self) -> wire.SshGateway:
        """Where to come in: `ssh sbx_…@host -p port`."""
        return await self._line.do(routes.gateway())

    async def add_key(
        self,
        public_key: str,
        *,
        name: str | None = None,
        sandbox_id: str | None = None,
        ttl: str | None = None,
    ) -> wire.SshKey:
        """For one sandbox, or without `sandbox_id` for every one of the account's."""
        wanted: dict[str, object] = {"public_key": public_key, "name": name}
        return await self._line.do(routes.add(wanted | {"sandbox_id": sandbox_id, "ttl": ttl}))

    async def keys(self) -> Sequence[wire.SshKey]:
        return (await self._line.do(routes.listed())).ssh_keys

    async def revoke_key(self, key_id: str) -> None:
        """What is open by it ends within a second."""
        await self._line.do(routes.revoke(key_id))
