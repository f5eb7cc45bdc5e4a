"""An attached interpreter and the connection to it: cells go in one after the other, and what they say comes
out.

Two tasks serve it: one reads what the interpreter says, the other sends cells and enforces their time limits.
A cell that nobody waits for any more runs on, and its output is kept for whoever asks. When the interpreter
is gone this object is finished; a restart makes a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

from sandboxer.backends.guest import EndReason, Exit, Process, Stream
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, SandboxerError
from sandboxer.work.exec import kill_quietly
from sandboxer.work.lines import RateLimit
from sandboxer.work.sessions.cells import (
    OUTPUT_LIMIT,
    Begun,
    Cell,
    Done,
    Fault,
    Frame,
    Gone,
    Hello,
    Lines,
    Printed,
    Ready,
    Shown,
    Status,
    read_frame,
)
from sandboxer.work.sessions.shelf import KeptCells

log = logging.getLogger(__name__)
# How long an interpreter may ignore an interrupt before all of its processes are killed.
PATIENCE_S = 5.0
# How many cells may wait for their turn.
QUEUE_LIMIT = 32
_STDERR_KEPT = 2000
# Bytes a second that are read from an interpreter, after a burst of as many. A program that prints more waits
# at its own full pipe: one tenant must not keep the server from reading the others.
RATE = 4 << 20

Working = Callable[[], AbstractAsyncContextManager[object]]
WhenGone = Callable[["Attached", str, str], Awaitable[None]]


class Attached:
    """An interpreter that this server is connected to. `working` is held open while a cell runs;
    `when_gone(self, reason, why)` is awaited once.
    """

    def __init__(
        self,
        process: Process,
        clock: Clock,
        *,
        kept: KeptCells,
        is_shell: bool,
        working: Working,
        when_gone: WhenGone,
    ) -> None:
        self._process = process
        self._clock = clock
        self._is_shell = is_shell
        self._working = working
        self._when_gone = when_gone
        self._kept = kept
        self.current: Cell | None = None
        # Numbers continue after a restart, and earlier output can still be read.
        self.last = max(kept.cells, default=0)
        self.greeted = asyncio.Event()
        self.over = asyncio.Event()
        # Why it ended: a word, and a sentence.
        self.reason, self.why = "", ""
        self._waiting: deque[Cell] = deque()
        self._stir = asyncio.Event()
        self._frozen_at: float | None = None
        self._frozen_s = 0.0
        self._words = b""

    @property
    def cells(self) -> Mapping[int, Cell]:
        return self._kept.cells

    @property
    def is_busy(self) -> bool:
        return self.current is not None or bool(self._waiting)

    async def live(self) -> None:
        """Serves the interpreter until it is gone. Cancelling detaches; the interpreter goes on."""
        feeding = asyncio.create_task(self._feed())
        try:
            async with self._process:
                await self._listen()
        except SandboxerError as error:
            self._note("lost", str(error))
        except Exception as error:
            log.exception("a session's line broke")
            self._note("broken", str(error))
        finally:
            feeding.cancel()
            self._kept.hold(0)
            await asyncio.wait([feeding])
        await self._finish()

    async def tell(self, **order: Any) -> None:
        await self._process.write_stdin(json.dumps(order).encode() + b"\n")

    def submit(self, code: str, timeout_s: float) -> Cell:
        """Queues a cell, which runs after those before it have ended. Raises Conflict if too many wait,
        OverBudget and NoCapacity if there is no room for its code.
        """
        if len(self._waiting) >= QUEUE_LIMIT:
            raise Conflict(
                why=f"{QUEUE_LIMIT} cells of this session are waiting already",
                reason="queue_full",
                hint="Wait for some of them, or interrupt the one that runs:"
                " POST /v1/sessions/{session_id}/interrupt.",
            )
        cell = Cell(n=self.last + 1, code=code, timeout_s=timeout_s, asked_at=self._clock.now())
        self._kept.add(cell)
        self.last = cell.n
        self._waiting.append(cell)
        self._stir.set()
        return cell

    def interrupt(self) -> Cell | None:
        """Asks the running cell to stop and returns it; returns None if none runs."""
        if (cell := self.current) is not None and cell.stopping is None:
            cell.stopping = Status.INTERRUPTED
            self._stir.set()
        return cell

    async def kill(self, reason: str, why: str) -> None:
        """Kills everything that this interpreter started and the interpreter itself; `over` is set when it is
        gone.
        """
        self._note(reason, why)
        await kill_quietly(self._process)

    def set_frozen(self, is_frozen: bool) -> None:
        """Stops and resumes time limits together with the processes."""
        now = time.monotonic()
        if is_frozen and self._frozen_at is None:
            self._frozen_at = now
        elif not is_frozen and self._frozen_at is not None:
            self._frozen_s += now - self._frozen_at
            self._frozen_at = None
        self._stir.set()

    # -- listening

    async def _listen(self) -> None:
        lines, rate_limit = Lines(), RateLimit(RATE)
        async for item in self._process.output():
            if isinstance(item, Exit):
                self._note_exit(item)
                return
            if item.stream is Stream.STDERR:
                # An error of the keeper itself; its interpreter prints elsewhere.
                self._words = (self._words + item.data)[-_STDERR_KEPT:]
                continue
            for line in lines.feed(item.data, item.dropped):
                frame = read_frame(line)
                if isinstance(frame, Gone):
                    self._note_gone(frame)
                    await kill_quietly(self._process)
                elif frame is not None:
                    self._take(frame)
            if not self._kept.hold(len(lines.held)):
                lines.skip()
                if self.current is not None:
                    self.current.truncated = True
            await rate_limit.spend(len(item.data))

    def _take(self, frame: Frame) -> None:
        match frame:
            case Ready():
                self.greeted.set()
            case Hello():
                self.last = max(self.last, frame.last)
                if frame.is_ready:
                    self.greeted.set()
            case Begun():
                self._begun(frame)
            case Printed():
                if (cell := self.cells.get(frame.n)) is not None and not cell.over.is_set():
                    cell.print(frame.stream, frame.data)
            case Shown():
                if (cell := self.cells.get(frame.n)) is not None and not cell.over.is_set():
                    cell.show(frame.mimes, is_main=frame.is_main)
            case Done():
                self._done(frame)

    def _begun(self, frame: Begun) -> None:
        """Notes that a cell has begun. A cell that this server did not send was sent by a previous server."""
        if frame.n in self.cells:
            return
        if self.current is not None and not self.current.over.is_set():
            # Cells run one after the other, so the end of the previous one was lost, or is withheld to make
            # cells pile up here.
            self.current.blame(Fault("lost", "another cell began before this one was said to end", ""))
            self._end(self.current, Status.ERROR, self._clock.now())
        limit = frame.note.get("timeout_s")
        cell = Cell(
            n=frame.n,
            code=frame.code,
            timeout_s=float(limit) if isinstance(limit, int | float) and 0 < limit < 1e6 else 60.0,
            asked_at=self._clock.now(),
            began_at=self._clock.now(),
            status=Status.RUNNING,
        )
        self._kept.add_found(cell)
        self.current = cell
        self.last = max(self.last, cell.n)
        self._stir.set()

    def _done(self, frame: Done) -> None:
        if (cell := self.cells.get(frame.n)) is None or cell.over.is_set():
            return
        if frame.fault is not None:
            cell.blame(frame.fault)
        cell.truncated = cell.truncated or any(frame.lost)
        failed = frame.fault is not None or frame.status != 0
        if self._is_shell:
            # Some shells report a signal as 256 or 384 plus its number.
            cell.exit_code = frame.status if frame.status < 256 else 128 + (frame.status & 0x7F)
            if frame.status and frame.fault is None:
                cell.blame(Fault("exit", f"exit status {cell.exit_code}", ""))
        status = (cell.stopping or Status.ERROR) if failed else Status.OK
        self._end(cell, status, self._clock.now())
        self._stir.set()

    # -- feeding

    async def _feed(self) -> None:
        try:
            while True:
                if self.current is None:
                    while not self._waiting:
                        self._stir.clear()
                        await self._stir.wait()
                    self.current = self._waiting.popleft()
                async with self._working():
                    await self._see_through(self.current)
                self.current = None
        except (SandboxerError, OSError) as error:
            # The sandbox refuses the command, or the connection broke: the reading task is told, if it still
            # runs.
            await self.kill("lost", str(error))

    async def _see_through(self, cell: Cell) -> None:
        if cell.status is Status.QUEUED:
            cell.status = Status.RUNNING
            cell.began_at = self._clock.now()
            note = {"timeout_s": cell.timeout_s}
            await self.tell(op="cell", n=cell.n, code=cell.code, limit=OUTPUT_LIMIT, m=note)
        began, stopped = self._running_s(), None
        while not cell.over.is_set():
            now = self._running_s()
            if cell.stopping is None and now >= began + cell.timeout_s:
                cell.stopping = Status.TIMED_OUT
            if cell.stopping is not None and stopped is None:
                stopped = now
                await self.tell(op="interrupt")
            if stopped is not None and now >= stopped + PATIENCE_S:
                why = f"it ignored an interrupt for {PATIENCE_S:g} s and was killed"
                await self.kill("unstoppable", why)
                await cell.over.wait()
                return
            due = began + cell.timeout_s if stopped is None else stopped + PATIENCE_S
            self._stir.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if self._frozen_at is not None else max(0.0, due - now)):
                    await self._stir.wait()

    def _running_s(self) -> float:
        frozen = 0.0 if self._frozen_at is None else time.monotonic() - self._frozen_at
        return time.monotonic() - self._frozen_s - frozen

    # -- the end

    def _note(self, reason: str, why: str) -> None:
        if not self.reason:
            self.reason, self.why = reason, why

    def _note_exit(self, ended: Exit) -> None:
        if ended.reason is EndReason.OOM_KILLED:
            self._note("oom_killed", "its sandbox ran out of memory")
            return
        words = self._words.decode("utf-8", "replace").strip()
        self._note("killed", words[-500:] or f"its processes were ended (exit code {ended.code})")

    def _note_gone(self, gone: Gone) -> None:
        why = f": {gone.why.strip()}" if gone.why.strip() else ""
        how = f"signal {-gone.code}" if gone.code < 0 else f"exit code {gone.code}"
        self._note("exited", f"the interpreter ended with {how}{why}")

    async def _finish(self) -> None:
        await self._when_gone(self, self.reason, self.why)
        at = self._clock.now()
        fault = Fault("session_died", self.why, "")
        for cell in (self.current, *self._waiting):
            if cell is not None and not cell.over.is_set():
                cell.blame(fault)
                self._end(cell, Status.DIED if cell is self.current else Status.CANCELLED, at)
        self.current = None
        self._waiting.clear()
        self.over.set()

    def _end(self, cell: Cell, status: Status, at: datetime) -> None:
        cell.end(status, at=at)
        self._kept.has_ended(cell)
