"""Sends orders to the launcher (`guest/launcher/`) and reads its answers, over one socket pair.

The launcher lives as long as this object; sandboxes outlive both. If it dies, the next order starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from sandboxer.backends.launch import Launched, LaunchOrder, Starter, answer_fields, failure_of
from sandboxer.kernel.errors import Broken, ProvisionFailed, Unavailable

log = logging.getLogger(__name__)
ANSWER_BYTES = 16384
START_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0
# Far beyond any honest launch, a hundred at once on two cores included.
LAUNCH_TIMEOUT_S = 60.0
# How long one may be silent before it is replaced.
HANGS_AFTER_S = 10.0
WATCH_EVERY_S = 5.0


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    line: socket.socket
    waiting: dict[str, asyncio.Future[Launched]] = field(default_factory=dict)
    unsent: deque[bytes] = field(default_factory=deque)


class Launcher:
    def __init__(
        self, *, program: Path, supervisor: Path, lock_fd: int, held_fds: tuple[int, ...] = ()
    ) -> None:
        """`held_fds`: locks that its workers hold too, as they do `lock_fd`."""
        self._argv = [str(program), "", str(supervisor), str(lock_fd)]
        self._held_fds = (lock_fd, *held_fds)
        self._running: _Running | None = None
        self._starting = asyncio.Lock()
        self._pings = count()

    async def start(self) -> None:
        async with self._starting:
            if self._running is None:
                self._running = await self._start()

    async def launch(self, order: LaunchOrder) -> Launched:
        """Starts a sandbox. Raises ProvisionFailed naming the step; then nothing of it runs."""
        if self._running is None:
            await self.start()
        if (running := self._running) is None:
            raise ProvisionFailed(step="launcher", why="the launcher did not start")
        answer: asyncio.Future[Launched] = asyncio.get_running_loop().create_future()
        running.waiting[order.tag] = answer
        try:
            self._send(running, order.encode())
            async with asyncio.timeout(LAUNCH_TIMEOUT_S):
                return await answer
        except TimeoutError:
            raise ProvisionFailed(step="launcher", why=f"no answer within {LAUNCH_TIMEOUT_S:g} s") from None
        finally:
            running.waiting.pop(order.tag, None)

    async def ping(self, *, within_s: float) -> None:
        """Checks that the launcher takes orders and can fork. Raises Unavailable if it does not answer in
        time.

        By an order that orders nothing, which it refuses: every launcher so far understands that.
        """
        if self._running is None:
            await self.start()
        if (running := self._running) is None:
            raise Unavailable(why="the launcher did not start")
        tag = f"ping-{next(self._pings)}"
        answer: asyncio.Future[Launched] = asyncio.get_running_loop().create_future()
        running.waiting[tag] = answer
        try:
            self._send(running, f"tag={tag}\0".encode())
            await asyncio.wait({answer}, timeout=within_s)
        finally:
            running.waiting.pop(tag, None)
        if not answer.done():
            answer.cancel()
            raise Unavailable(why=f"the launcher gave no answer within {within_s:g} s")
        error = answer.exception()
        # Refused as an order is the answer; anything else says that it cannot.
        if isinstance(error, ProvisionFailed) and error.facts.get("step") != "order":
            raise Unavailable(why=f"the launcher cannot make sandboxes: {error}")

    async def replace(self) -> None:
        """Ends a launcher that hangs. Whoever waits for it gets an error, and the next order starts
        another.
        """
        running, self._running = self._running, None
        if running is None:
            return
        running.process.kill()
        self._end(running, "the launcher hung, and was replaced")
        await asyncio.to_thread(running.process.wait)
        await self.start()

    async def close(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            self._end(running, "the launcher was closed")
            await asyncio.to_thread(_wait_or_kill, running.process)

    def forget(self, sandbox_id: str) -> None:
        """Nothing: what it made ends with the sandbox's processes, or is removed by who ordered it."""

    async def _start(self) -> _Running:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [self._argv[0], str(theirs.fileno()), *self._argv[2:]]
            process = await asyncio.to_thread(
                subprocess.Popen,
                argv,
                pass_fds=(theirs.fileno(), *self._held_fds),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={},
                start_new_session=True,
            )
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(START_TIMEOUT_S):
            hello = await loop.sock_recv(ours, ANSWER_BYTES)
        if not hello:
            ours.close()
            _, errors = await asyncio.to_thread(process.communicate)
            raise Broken(why=f"the launcher did not start: {errors.decode(errors='replace').strip()}")
        if process.stderr is not None:
            process.stderr.close()
        running = _Running(process, ours)
        loop.add_reader(ours.fileno(), self._read, running)
        return running

    def _send(self, running: _Running, data: bytes) -> None:
        """Sends an order now, or after the ones that wait before it."""
        running.unsent.append(data)
        if len(running.unsent) == 1:
            self._flush(running)

    def _flush(self, running: _Running) -> None:
        loop = asyncio.get_running_loop()
        try:
            while running.unsent:
                running.line.send(running.unsent[0])
                running.unsent.popleft()
        except BlockingIOError:
            loop.add_writer(running.line.fileno(), self._flush, running)
        except OSError:
            # It has died: the reader hears of it, and tells everyone who waits.
            running.unsent.clear()
        if not running.unsent:
            loop.remove_writer(running.line.fileno())

    def _read(self, running: _Running) -> None:
        while True:
            try:
                data = running.line.recv(ANSWER_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                if self._running is running:
                    self._running = None
                self._end(running, "the launcher ended")
                return
            self._take(running, answer_fields(data))

    def _take(self, running: _Running, answer: dict[str, str]) -> None:
        if (waiting := running.waiting.get(answer.get("tag", ""))) is None or waiting.done():
            return
        if "made" in answer:
            waiting.set_result(_launched(answer))
            return
        waiting.set_exception(failure_of(answer))

    def _end(self, running: _Running, why: str) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(running.line.fileno())
        loop.remove_writer(running.line.fileno())
        running.unsent.clear()
        running.line.close()
        for waiting in running.waiting.values():
            if not waiting.done():
                waiting.set_exception(ProvisionFailed(step="launcher", why=why))


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    """Waits for the launcher to end, and kills it if it hangs. It ends by itself when its socket is
    closed.
    """
    try:
        process.wait(CLOSE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _launched(answer: dict[str, str]) -> Launched:
    timings = {key[2:]: float(value) for key, value in answer.items() if key.startswith("t.")}
    return Launched(pid=int(answer["pid"]), started=int(answer["start"]), timings_ms=timings)


async def watch_launcher(launcher: Starter) -> None:
    """Replaces a launcher that hangs, for ever. Sandboxes do not depend on it once they run."""
    while True:
        await asyncio.sleep(WATCH_EVERY_S)
        try:
            await launcher.ping(within_s=HANGS_AFTER_S)
        except Unavailable as error:
            log.error("the launcher hangs (%s): it is replaced", error)
            await launcher.replace()
        except Exception:
            # An outermost loop: what could not be started now is started with the next order.
            log.exception("the launcher could not be looked at")
