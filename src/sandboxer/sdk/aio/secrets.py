"""`client.secrets` and `sandbox.secrets`, with asyncio: values go in and never come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.calls import secrets as calls
from sandboxer.wire import secrets as wire


class AsyncSecrets:
    """Those of the account."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def set(self, name: str, value: str) -> wire.Secret:
        return await self._line.send(calls.put_secret(name, value=value))

    async def get(self, name: str) -> wire.Secret:
        return await self._line.send(calls.get_secret(name))

    async def list(self) -> Sequence[wire.Secret]:
        return (await self._line.send(calls.list_secrets())).secrets

    async def remove(self, name: str) -> None:
        """Sandboxes that have it keep it until it is wiped there."""
        await self._line.send(calls.remove_secret(name))


class AsyncSandboxSecrets:
    """Those in one sandbox."""

    def __init__(self, line: AsyncLine, sandbox_id: str) -> None:
        self._line = line
        self._sandbox_id = sandbox_id

    async def inject(
        self, *names: str, values: Mapping[str, str] | None = None, env: bool = True, files: bool = False
    ) -> Sequence[wire.InjectedSecret]:
        """`names` of the account, `values` for this sandbox alone; as variables and/or /run/secrets/NAME."""
        call = calls.inject_secrets(self._sandbox_id, names=names, values=values, env=env, files=files)
        return (await self._line.send(call)).secrets

    async def list(self) -> Sequence[wire.InjectedSecret]:
        return (await self._line.send(calls.list_injected_secrets(self._sandbox_id))).secrets

    async def wipe(self, name: str | None = None) -> wire.WipedSecrets:
        """All, or the one."""
        if name is None:
            return await self._line.send(calls.wipe_secrets(self._sandbox_id))
        return await self._line.send(calls.wipe_secret(self._sandbox_id, name))
