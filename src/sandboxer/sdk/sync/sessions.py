"""`client.sessions`: interpreters that keep their state, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Unpack

from sandboxer.sdk.routes import sessions as routes
from sandboxer.sdk.routes.sessions import CellPiece, StartOptions
from sandboxer.sdk.sync.line import Line
from sandboxer.sdk.sync.streams import server_events
from sandboxer.wire import sessions as wire
from sandboxer.wire.sandboxes import Sandbox


class Session:
    """`with client.sessions.start("python") as session:` ends it at the end."""

    def __init__(self, line: Line, session_id: str, info: wire.Session | None = None) -> None:
        self._line = line
        self._info = info
        self.id = session_id

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def info(self) -> wire.Session | None:
        """What the platform last said about it; None before the first `refresh`."""
        return self._info

    def refresh(self) -> wire.Session:
        self._info = self._line.do(routes.get(self.id))
        return self._info

    def run(self, code: str, *, timeout_s: float | None = None) -> wire.Cell:
        """Run to the end; what it sets, the next cell finds."""
        return self._line.do(routes.run(self.id, code, timeout_s=timeout_s))

    def submit(self, code: str, *, timeout_s: float | None = None) -> wire.Cell:
        """Have it run; `cell` and `follow` look at it later."""
        return self._line.do(routes.run(self.id, code, timeout_s=timeout_s, wait=False))

    def stream(self, code: str, *, timeout_s: float | None = None) -> Iterator[CellPiece]:
        """As it happens: a `CellEnd` when it is taken, output and results, a `CellEnd` at the end."""
        for event in server_events(self._line, routes.stream(self.id, code, timeout_s=timeout_s)):
            if (piece := routes.piece(event)) is not None:
                yield piece

    def follow(self, n: int) -> Iterator[CellPiece]:
        """A cell from its beginning, whoever asked for it."""
        for event in server_events(self._line, routes.follow(self.id, n)):
            if (piece := routes.piece(event)) is not None:
                yield piece

    def cell(self, n: int, *, wait_s: float = 0.0) -> wire.Cell:
        """How it stands, or how it ended if that is within `wait_s`."""
        return self._line.do(routes.cell(self.id, n, wait_s=wait_s))

    def cells(self) -> Sequence[wire.CellEnd]:
        return (self._line.do(routes.cells(self.id))).cells

    def interrupt(self) -> int | None:
        """The number of the cell that was asked to stop; None if none ran."""
        return (self._line.do(routes.interrupt(self.id))).cell

    def restart(self) -> wire.Session:
        """A fresh interpreter: what the old one knew is gone, files are not."""
        return self._change("restart")

    def freeze(self) -> wire.Session:
        return self._change("freeze")

    def thaw(self) -> wire.Session:
        return self._change("thaw")

    def boost(self, vcpus: int) -> wire.Session:
        """CPUs in all; each brings 2 GB of memory."""
        self._info = self._line.do(routes.boost(self.id, vcpus))
        return self._info

    def unboost(self) -> wire.Session:
        return self._change("unboost")

    def lock(self) -> wire.Session:
        return self._change("lock")

    def unlock(self) -> wire.Session:
        return self._change("unlock")

    def end(self) -> wire.Session:
        """Ended already is success; a sandbox that was made for it goes with it."""
        self._info = self._line.do(routes.end(self.id))
        return self._info

    def _change(self, verb: routes.Verb) -> wire.Session:
        self._info = self._line.do(routes.change(self.id, verb))
        return self._info


class Sessions:
    def __init__(self, line: Line) -> None:
        self._line = line

    def start(
        self, language: str, *, idempotency_key: str | None = None, **options: Unpack[StartOptions]
    ) -> Session:
        """Ready to take cells, in a sandbox of its own or in the one that is named."""
        info = self._line.do(routes.start(language, options, idempotency_key=idempotency_key))
        return Session(self._line, info.id, info)

    def get(self, session_id: str) -> Session:
        info = self._line.do(routes.get(session_id))
        return Session(self._line, info.id, info)

    def list(
        self, *, sandbox_id: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Iterator[wire.Session]:
        """All of them, newest first, page by page; `limit` is the size of a page."""
        cursor: str | None = None
        while True:
            page = self._line.do(routes.page(sandbox_id=sandbox_id, state=state, cursor=cursor, limit=limit))
            yield from page.sessions
            cursor = page.next_cursor
            if cursor is None:
                return

    def boost(self, sandbox_id: str, vcpus: int) -> Sandbox:
        """Of any sandbox, whether or not a session is in it."""
        return self._line.do(routes.boost_sandbox(sandbox_id, vcpus))

    def unboost(self, sandbox_id: str) -> Sandbox:
        return self._line.do(routes.unboost_sandbox(sandbox_id))
