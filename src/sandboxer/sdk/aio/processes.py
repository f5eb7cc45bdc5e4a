"""`sandbox.processes`: background processes, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.aio.streams import server_events
from sandboxer.sdk.routes import running as routes
from sandboxer.sdk.routes.running import Piece, Settings, What
from sandboxer.wire.processes import Process


class AsyncProcesses:
    """Started by one request, looked after by others, alive between them."""

    def __init__(self, line: AsyncLine, sandbox_id: str) -> None:
        self._line = line
        self._id = sandbox_id

    async def start(
        self,
        what: What,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
        has_stdin: bool = False,
        tag: str = "",
    ) -> Process:
        settings = Settings(cwd=cwd, env=env, user=user, timeout_s=timeout_s)
        return await self._line.do(routes.start(self._id, what, settings, has_stdin=has_stdin, tag=tag))

    async def list(self) -> Sequence[Process]:
        return (await self._line.do(routes.processes(self._id))).processes

    async def get(self, process_id: str) -> Process:
        return await self._line.do(routes.process(self._id, process_id))

    async def output(self, process_id: str, *, after: str | None = None) -> AsyncIterator[Piece]:
        """What is kept of its output, then what follows, then its exit."""
        async for event in server_events(self._line, routes.output(self._id, process_id, after=after)):
            if (piece := routes.piece(event)) is not None:
                yield piece

    async def write_stdin(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        """Returns when its stdin took all of it. `offset`: bytes written before; it can then be repeated."""
        await self._line.do(routes.write_stdin(self._id, process_id, data, close=close, offset=offset))

    async def close_stdin(self, process_id: str) -> None:
        await self._line.do(routes.close_stdin(self._id, process_id))

    async def signal(self, process_id: str, name: str, *, tree: bool = False) -> None:
        """`name` without SIG, as in `TERM`."""
        await self._line.do(routes.signal(self._id, process_id, name, tree=tree))

    async def wait(self, process_id: str, *, timeout_s: float = 60.0) -> Process:
        """Its end, or its present state when the time is over."""
        return await self._line.do(routes.wait(self._id, process_id, timeout_s))

    async def end(self, process_id: str) -> None:
        """Kill everything it started, and forget it."""
        await self._line.do(routes.end(self._id, process_id))
