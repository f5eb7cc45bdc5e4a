"""`client.sessions`: interpreters that keep their state, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Unpack

from sandboxer.sdk.aio.line import AsyncLine, pages, server_events
from sandboxer.sdk.call import STREAM_TIMEOUT_S, Call, new_idempotency_key
from sandboxer.sdk.calls import sandboxes
from sandboxer.sdk.calls import sessions as calls
from sandboxer.sdk.code import CellPiece, StartOptions, cell_piece
from sandboxer.sdk.commands import MARGIN_S
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
        self._info = await self._line.send(calls.get_session(self.id))
        return self._info

    async def run(self, code: str, *, timeout_s: float | None = None) -> wire.Cell:
        """Run to the end; what it sets, the next cell finds."""
        call = calls.run_cell(self.id, code=code, timeout_s=timeout_s, wait=True)
        # Those before it come first; nobody knows how long they take.
        return await self._line.send(call.within(STREAM_TIMEOUT_S))

    async def submit(self, code: str, *, timeout_s: float | None = None) -> wire.Cell:
        """Have it run; `cell` and `follow` look at it later."""
        call = calls.run_cell(self.id, code=code, timeout_s=timeout_s, wait=False)
        return await self._line.send(call.within((timeout_s or wire.CELL_TIMEOUT_DEFAULT_S) + MARGIN_S))

    async def stream(self, code: str, *, timeout_s: float | None = None) -> AsyncIterator[CellPiece]:
        """As it happens: a `CellEnd` when it is taken, output and results, a `CellEnd` at the end."""
        call = calls.run_cell(self.id, code=code, timeout_s=timeout_s, encoding="base64")
        async for event in server_events(self._line, call.streamed()):
            if (piece := cell_piece(event)) is not None:
                yield piece

    async def follow(self, n: int) -> AsyncIterator[CellPiece]:
        """A cell from its beginning, whoever asked for it."""
        call = calls.get_cell(self.id, n, encoding="base64")
        async for event in server_events(self._line, call.streamed()):
            if (piece := cell_piece(event)) is not None:
                yield piece

    async def cell(self, n: int, *, wait_s: float = 0.0) -> wire.Cell:
        """How it stands, or how it ended if that is within `wait_s`."""
        call = calls.get_cell(self.id, n, wait_s=wait_s or None)
        return await self._line.send(call.within(wait_s + MARGIN_S))

    async def cells(self) -> Sequence[wire.CellEnd]:
        return (await self._line.send(calls.list_cells(self.id))).cells

    async def interrupt(self) -> int | None:
        """Returns the number of the cell that was asked to stop; None if none ran."""
        return (await self._line.send(calls.interrupt_session(self.id))).cell

    async def restart(self) -> wire.Session:
        """A fresh interpreter: what the old one knew is gone, files are not."""
        return await self._change(calls.restart_session(self.id))

    async def freeze(self) -> wire.Session:
        return await self._change(calls.freeze_session(self.id))

    async def thaw(self) -> wire.Session:
        return await self._change(calls.thaw_session(self.id))

    async def boost(self, vcpus: int) -> wire.Session:
        """CPUs in all; each brings 2 GB of memory."""
        return await self._change(calls.boost_session(self.id, vcpus=vcpus))

    async def unboost(self) -> wire.Session:
        return await self._change(calls.unboost_session(self.id))

    async def lock(self) -> wire.Session:
        return await self._change(calls.lock_session(self.id))

    async def unlock(self) -> wire.Session:
        return await self._change(calls.unlock_session(self.id))

    async def end(self) -> wire.Session:
        """Ended already is success; a sandbox that was made for it goes with it."""
        return await self._change(calls.end_session(self.id))

    async def _change(self, call: Call[wire.Session]) -> wire.Session:
        self._info = await self._line.send(call)
        return self._info


class AsyncSessions:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def start(
        self, language: str, *, idempotency_key: str | None = None, **options: Unpack[StartOptions]
    ) -> AsyncSession:
        """Ready to take cells, in a sandbox of its own or in the one that is named."""
        call = calls.start_session(
            language=language, idempotency_key=idempotency_key or new_idempotency_key(), **options
        )
        info = await self._line.send(call)
        return AsyncSession(self._line, info.id, info)

    async def get(self, session_id: str) -> AsyncSession:
        info = await self._line.send(calls.get_session(session_id))
        return AsyncSession(self._line, info.id, info)

    async def list(
        self, *, sandbox_id: str | None = None, state: str | None = None, limit: int | None = None
    ) -> AsyncIterator[wire.Session]:
        """Yields all of them, newest first, page by page; `limit` is the size of a page."""
        async for page in pages(
            self._line,
            lambda cursor: calls.list_sessions(
                sandbox_id=sandbox_id, state=state, cursor=cursor, limit=limit
            ),
        ):
            for found in page.sessions:
                yield found

    async def boost(self, sandbox_id: str, vcpus: int) -> Sandbox:
        """Of any sandbox, whether or not a session is in it."""
        return await self._line.send(sandboxes.boost_sandbox(sandbox_id, vcpus=vcpus))

    async def unboost(self, sandbox_id: str) -> Sandbox:
        return await self._line.send(sandboxes.unboost_sandbox(sandbox_id))
