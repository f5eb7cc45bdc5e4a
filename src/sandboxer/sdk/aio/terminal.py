"""`sandbox.terminal`: a pseudo terminal inside the sandbox over a WebSocket, with asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from sandboxer.sdk import terminals
from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.aio.native import received
from sandboxer.sdk.call import Answer, problem_of
from sandboxer.sdk.calls import processes as calls
from sandboxer.sdk.errors import Unreachable
from sandboxer.wire.processes import Terminal, TerminalExit, TerminalReady


class AsyncSession:
    """One attachment. Leaving `async with` detaches; the program goes on and can be attached again."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.ready: TerminalReady | None = None
        self.exit: TerminalExit | None = None

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.detach()

    @property
    def terminal_id(self) -> str | None:
        return self.ready.terminal_id if self.ready else None

    async def read(self, timeout_s: float | None = None) -> bytes | None:
        """Bytes of the terminal; None when the program ended (`exit` says how) or we were detached."""
        while True:
            try:
                frame = await received(self._connection, timeout_s)
            except ConnectionClosed:
                return None
            if isinstance(frame, bytes):
                return frame
            self._note(frame)
            if self.exit is not None:
                return None

    def _note(self, text: str) -> None:
        said = terminals.word(text)
        if isinstance(said, TerminalReady):
            self.ready = said
        elif isinstance(said, TerminalExit):
            self.exit = said

    async def write(self, data: bytes) -> None:
        await self._connection.send(data)

    async def resize(self, cols: int, rows: int) -> None:
        await self._connection.send(terminals.resize(cols, rows))

    async def detach(self) -> None:
        await self._connection.close()


class AsyncTerminals:
    def __init__(self, line: AsyncLine, sandbox_id: str) -> None:
        self._line = line
        self._id = sandbox_id

    async def open(
        self,
        *,
        command: str | None = None,
        cwd: str | None = None,
        user: str | None = None,
        cols: int = 80,
        rows: int = 24,
        terminal_id: str | None = None,
    ) -> AsyncSession:
        """A new terminal (a shell unless `command` says otherwise), or again the one with `terminal_id`."""
        call = calls.open_terminal(
            self._id, cols=cols, rows=rows, terminal_id=terminal_id, command=command, cwd=cwd, user=user
        )
        url, headers = terminals.dialing(self._line.signer, self._line.url, call)
        try:
            connection = await connect(
                url, additional_headers=headers, proxy=None, compression=None, max_size=terminals.MAX_FRAME
            )
        except InvalidStatus as refused:
            answer = refused.response
            headers = {name.lower(): value for name, value in answer.headers.raw_items()}
            raise problem_of(Answer(answer.status_code, headers, bytes(answer.body or b""))) from None
        except (OSError, WebSocketException) as error:
            raise Unreachable(f"Could not open a terminal at {self._line.url}: {error}") from error
        return AsyncSession(connection)

    async def list(self) -> Sequence[Terminal]:
        return (await self._line.send(calls.list_terminals(self._id))).terminals

    async def end(self, terminal_id: str) -> None:
        await self._line.send(calls.end_terminal(self._id, terminal_id))
