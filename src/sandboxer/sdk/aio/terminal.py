"""`sandbox.terminal`: a pseudo terminal inside the sandbox over a WebSocket, with asyncio."""

from __future__ import annotations

from collections.abc import Sequence

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from sandboxer.sdk import commands
from sandboxer.sdk.aio.line import AsyncNounInside, AsyncScope
from sandboxer.sdk.aio.native import received
from sandboxer.sdk.call import Answer, problem_of
from sandboxer.sdk.calls import processes as calls
from sandboxer.sdk.errors import Unreachable
from sandboxer.wire.processes import Terminal, TerminalExit, TerminalReady


class AsyncSession(AsyncScope):
    """It is attached to one terminal. Leaving `async with` detaches; the program goes on."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.ready: TerminalReady | None = None
        self.exit: TerminalExit | None = None

    def __repr__(self) -> str:
        state = "open" if self.exit is None else f"ended with {self.exit.exit_code}"
        return f"<{type(self).__name__} {self.terminal_id or 'not ready'} {state}>"

    async def _leave(self) -> None:
        await self.detach()

    @property
    def terminal_id(self) -> str | None:
        """Names the terminal for `open` to attach again; None before the first `read`."""
        return self.ready.terminal_id if self.ready else None

    async def read(self, timeout_s: float | None = None) -> bytes | None:
        """Returns what the program wrote; None when it ended (`exit` says how) or we were detached."""
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
        said = commands.terminal_word(text)
        if isinstance(said, TerminalReady):
            self.ready = said
        elif isinstance(said, TerminalExit):
            self.exit = said

    async def write(self, data: bytes) -> None:
        """Types these bytes."""
        await self._connection.send(data)

    async def resize(self, cols: int, rows: int) -> None:
        """Tells the program how large the window is."""
        await self._connection.send(commands.resize(cols, rows))

    async def detach(self) -> None:
        """Leaves; the program goes on."""
        await self._connection.close()


class AsyncTerminals(AsyncNounInside):
    """Terminals go on when nobody looks, and can be attached again."""

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
        """Opens a terminal (a shell unless `command` says otherwise), or again the one with `terminal_id`."""
        call = calls.open_terminal(
            self._id, cols=cols, rows=rows, terminal_id=terminal_id, command=command, cwd=cwd, user=user
        )
        url, headers = commands.dialing(self._line.signer, self._line.url, call)
        try:
            connection = await connect(
                url,
                sock=commands.dialed(self._line.socket),
                additional_headers=headers,
                proxy=None,
                compression=None,
                max_size=commands.MAX_FRAME,
            )
        except InvalidStatus as refused:
            answer = refused.response
            headers = {name.lower(): value for name, value in answer.headers.raw_items()}
            raise problem_of(Answer(answer.status_code, headers, bytes(answer.body or b""))) from None
        except (OSError, WebSocketException) as error:
            raise Unreachable(f"Could not open a terminal at {self._line.url}: {error}") from error
        return AsyncSession(connection)

    async def list(self) -> Sequence[Terminal]:
        """Returns the terminals that are open."""
        return (await self._line.send(calls.list_terminals(self._id))).terminals

    async def end(self, terminal_id: str) -> None:
        """Ends a terminal with all that runs in it."""
        await self._line.send(calls.end_terminal(self._id, terminal_id))
