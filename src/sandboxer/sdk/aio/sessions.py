"""`client.sessions`: interpreters that keep their state, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Unpack

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.aio.streams import server_events
from sandboxer.sdk.routes import sessions as routes
from sandboxer.sdk.routes.sessions import CellPiece, StartOptions
from sandboxer.wire import sessions as wire
from sandboxer.wire.sandboxes import Sandbox


class AsyncSession:
    """`async with await client.sessions.start("python") as session:` ends it at the end."""

    def __init__(self, line: AsyncLine, session_id: str, info: wire.Session | None = None) -> None:
        self._line = line
        self._info = info
        self.id = session_id

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    @property
    def info(self) -> wire.Session | None:
        """What the platform last said about it; None before the first `refresh`."""
        return self._info

    async def refresh(self) -> wire.Session:
        self._info = await self._line.do(routes.get(self.id))
        return self._info

    async def run(self, code: str, *, timeout_s: float | None = None) -> wire.Cell:
        """Run to the end; what it sets, the next cell finds."""
        return await self._line.do(routes.run(self.id, code, timeout_s=timeout_s))

    async def submit(self, code: str, *, timeout_s: float | None = None) -> wire.Cell:
        """Have it run; `cell` and `follow` look at it later."""
        return await self._line.do(routes.run(self.id, code, timeout_s=timeout_s, wait=False))

    async def stream(self, code: str, *, timeout_s: float | None = None) -> AsyncIterator[CellPiece]:
        """As it happens: a `CellEnd` when it is taken, output and results, a `CellEnd` at the end."""
        async for event in server_events(self._line, routes.stream(self.id, code, timeout_s=timeout_s)):
            if (piece := routes.piece(event)) is not None:
                yield piece

    async def follow(self, n: int) -> AsyncIterator[CellPiece]:
        """A cell from its beginning, whoever asked for it."""
        async for event in server_events(self._line, routes.follow(self.id, n)):
            if (piece := routes.piece(event)) is not None:
                yield piece

    async def cell(self, n: int, *, wait_s: float = 0.0) -> wire.Cell:
        """How it stands, or how it ended if that is within `wait_s`."""
        return await self._line.do(routes.cell(self.id, n, wait_s=wait_s))

    async def cells(self) -> Sequence[wire.CellEnd]:
        return (await self._line.do(routes.cells(self.id))).cells

    async def interrupt(self) -> int | None:
        """The number of the cell that was asked to stop; None if none ran."""
        return (await self._line.do(routes.interrupt(self.id))).cell

    async def restart(self) -> wire.Session:
        """A fresh interpreter: what the old one knew is gone, files are not."""
        return await self._change("restart")

    async def freeze(self) -> wire.Session:
        return await self._change("freeze")

    async def thaw(self) -> wire.Session:
        return await self._change("thaw")

    async def boost(self, vcpus: int) -> wire.Session:
        """CPUs in all; each brings 2 GB of memory."""
        self._info = await self._line.do(routes.boost(self.id, vcpus))
        return self._info

    async def unboost(self) -> wire.Session:
        return await self._change("unboost")

    async def lock(self) -> wire.Session:
        return await self._change("lock")

    async def unlock(self) -> wire.Session:
        return await self._change("unlock")

    async def end(self) -> wire.Session:
        """Ended already is success; a sandbox that was made for it goes with it."""
        self._info = await self._line.do(routes.end(self.id))
        return self._info

    async def _change(self, verb: routes.Verb) -> wire.Session:
        self._info = await self._line.do(routes.change(self.id, verb))
        return self._info


class AsyncSessions:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def start(
        self, language: str, *, idempotency_key: str | None = None, **options: Unpack[StartOptions]
    ) -> AsyncSession:
        """Ready to take cells, in a sandbox of its own or in the one that is named."""
        info = await self._line.do(routes.start(language, options, idempotency_key=idempotency_key))
        return AsyncSession(self._line, info.id, info)

    async def get(self, session_id: str) -> AsyncSession:
        info = await self._line.do(routes.get(session_id))
        return AsyncSession(self._line, info.id, info)

    async def list(
        self, *, sandbox_id: str | None = None, state: str | None = None, limit: int | None = None
    ) -> AsyncIterator[wire.Session]:
        """All of them, newest first, page by page; `limit` is the size of a page."""
        cursor: str | None = None
        while True:
            page = await self._line.do(
                routes.page(sandbox_id=sandbox_id, state=state, cursor=cursor, limit=limit)
            )
            for found in page.sessions:
                yield found
            cursor = page.next_cursor
            if cursor is None:
                return

    async def boost(self, sandbox_id: str, vcpus: int) -> Sandbox:
        """Of any sandbox, whether or not a session is in it."""
        return await self._line.do(routes.boost_sandbox(sandbox_id, vcpus))

    async def unboost(self, sandbox_id: str) -> Sandbox:
        return await self._line.do(routes.unboost_sandbox(sandbox_id))
