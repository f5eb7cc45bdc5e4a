"""`sandbox.previews`: addresses that open a port inside, with asyncio."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.calls import previews as calls
from sandboxer.wire import previews as wire


class AsyncPreviews:
    def __init__(self, line: AsyncLine, sandbox_id: str) -> None:
        self._line = line
        self._sandbox_id = sandbox_id

    async def create(
        self,
        port: int,
        *,
        ttl: str | None = None,
        public: bool | None = None,
        one_time: bool | None = None,
        wakes: bool | None = None,
        hold_s: int | None = None,
    ) -> wire.NewPreview:
        """`url` opens the port in a browser; `token` goes into X-Sandboxer-Preview."""
        call = calls.create_preview(
            self._sandbox_id,
            port=port,
            ttl=ttl,
            public=public,
            one_time=one_time,
            wakes=wakes,
            hold_s=hold_s,
        )
        return await self._line.send(call)

    async def list(self) -> Sequence[wire.Preview]:
        return (await self._line.send(calls.list_previews(self._sandbox_id))).previews

    async def revoke(self, preview_id: str) -> None:
        await self._line.send(calls.revoke_preview(self._sandbox_id, preview_id))
