# Written by scripts/generate-sync from sdk/aio/sessions.py. Do not edit.
"""`client.sessions`: interpreters that keep their state, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Unpack

from sandboxer.sdk.call import STREAM_TIMEOUT_S, Call, new_idempotency_key
from sandboxer.sdk.calls import sandboxes
from sandboxer.sdk.calls import sessions as calls
from sandboxer.sdk.code import CellPiece, StartOptions, cell_piece
from sandboxer.sdk.commands import MARGIN_S
from sandboxer.sdk.sync.line import Line, pages, server_events
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
        self._info = self._line.send(calls.get_session(self.id))
        return self._info

    def run(self, code: str, *, timeout_s: float | None = None) -> wire.Cell:
        """Run to the end; what it sets, the next cell finds."""
        call = calls.run_cell(self.id, code=code, timeout_s=timeout_s, wait=True)
        # Those before it come first; nobody knows how long they take.
        return self._line.send(call.within(STREAM_TIMEOUT_S))

    def submit(self, code: str, *, timeout_s: float | None = None) -> wire.Cell:
        """Have it run; `cell` and `follow` look at it later."""
        call = calls.run_cell(self.id, code=code, timeout_s=timeout_s, wait=False)
        return self._line.send(call.within((timeout_s or wire.CELL_TIMEOUT_DEFAULT_S) + MARGIN_S))

    def stream(self, code: str, *, timeout_s: float | None = None) -> Iterator[CellPiece]:
        """As it happens: a `CellEnd` when it is taken, output and results, a `CellEnd` at the end."""
        call = calls.run_cell(self.id, code=code, timeout_s=timeout_s, encoding="base64")
        for event in server_events(self._line, call.streamed()):
            if (piece := cell_piece(event)) is not None:
                yield piece

    def follow(self, n: int) -> Iterator[CellPiece]:
        """A cell from its beginning, whoever asked for it."""
        call = calls.get_cell(self.id, n, encoding="base64")
        for event in server_events(self._line, call.streamed()):
            if (piece := cell_piece(event)) is not None:
                yield piece

    def cell(self, n: int, *, wait_s: float = 0.0) -> wire.Cell:
        """How it stands, or how it ended if that is within `wait_s`."""
        call = calls.get_cell(self.id, n, wait_s=wait_s or None)
        return self._line.send(call.within(wait_s + MARGIN_S))

    def cells(self) -> Sequence[wire.CellEnd]:
        return self._line.send(calls.list_cells(self.id)).cells

    def interrupt(self) -> int | None:
        """Returns the number of the cell that was asked to stop; None if none ran."""
        return self._line.send(calls.interrupt_session(self.id)).cell

    def restart(self) -> wire.Session:
        """A fresh interpreter: what the old one knew is gone, files are not."""
        return self._change(calls.restart_session(self.id))

    def freeze(self) -> wire.Session:
        return self._change(calls.freeze_session(self.id))

    def thaw(self) -> wire.Session:
        return self._change(calls.thaw_session(self.id))

    def boost(self, vcpus: int) -> wire.Session:
        """CPUs in all; each brings 2 GB of memory."""
        return self._change(calls.boost_session(self.id, vcpus=vcpus))

    def unboost(self) -> wire.Session:
        return self._change(calls.unboost_session(self.id))

    def lock(self) -> wire.Session:
        return self._change(calls.lock_session(self.id))

    def unlock(self) -> wire.Session:
        return self._change(calls.unlock_session(self.id))

    def end(self) -> wire.Session:
        """Ended already is success; a sandbox that was made for it goes with it."""
        return self._change(calls.end_session(self.id))

    def _change(self, call: Call[wire.Session]) -> wire.Session:
        self._info = self._line.send(call)
        return self._info


class Sessions:
    def __init__(self, line: Line) -> None:
        self._line = line

    def start(
        self, language: str, *, idempotency_key: str | None = None, **options: Unpack[StartOptions]
    ) -> Session:
        """Ready to take cells, in a sandbox of its own or in the one that is named."""
        call = calls.start_session(
            language=language, idempotency_key=idempotency_key or new_idempotency_key(), **options
        )
        info = self._line.send(call)
        return Session(self._line, info.id, info)

    def get(self, session_id: str) -> Session:
        info = self._line.send(calls.get_session(session_id))
        return Session(self._line, info.id, info)

    def list(
        self, *, sandbox_id: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Iterator[wire.Session]:
        """Yields all of them, newest first, page by page; `limit` is the size of a page."""
        for page in pages(
            self._line,
            lambda cursor: calls.list_sessions(
                sandbox_id=sandbox_id, state=state, cursor=cursor, limit=limit
            ),
        ):
            yield from page.sessions

    def boost(self, sandbox_id: str, vcpus: int) -> Sandbox:
        """Of any sandbox, whether or not a session is in it."""
        return self._line.send(sandboxes.boost_sandbox(sandbox_id, vcpus=vcpus))

    def unboost(self, sandbox_id: str) -> Sandbox:
        return self._line.send(sandboxes.unboost_sandbox(sandbox_id))
