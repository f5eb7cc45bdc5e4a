"""Implements one sandbox of the fake, and its guest: `ScriptedFiles` are the contract's, over its disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from sandboxer.backends.contract import Order, Presence
from sandboxer.backends.guest import (
    Command,
    Connection,
    FileEvent,
    FileInfo,
    FileKind,
    ListingPage,
    ProcessInfo,
    Stream,
)
from sandboxer.backends.scripted.disk import CHUNK, USERS, Disk
from sandboxer.backends.scripted.processes import Job, ScriptedProcess, Stdin, feed_job
from sandboxer.backends.scripted.programs import PROGRAMS
from sandboxer.backends.scripted.shell import Program, Shell, ring_writer
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import (
    BackendLost,
    Conflict,
    GuestRefused,
    InvalidRequest,
    IsADirectory,
    NotADirectory,
    NotARegularFile,
    PathNotFound,
    or_not_found,
)
from sandboxer.kernel.values import new_id

KEEP_ENDED = 64


@dataclass
class Box:
    order: Order
    clock: Clock
    answers: Mapping[str, bytes]
    disk: Disk
    presence: Presence = Presence.RUNNING
    reason: str | None = None
    jobs: dict[str, Job] = field(default_factory=dict)
    ports: dict[int, Callable[[ScriptedConnection], None]] = field(default_factory=dict)
    # Set while processes may run.
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    pids: int = 1
    # CPU time this sandbox claims to have used; tests move it.
    cpu_s: float = 0.01

    def __post_init__(self) -> None:
        self.thawed.set()

    def end_processes(self) -> None:
        for job in self.jobs.values():
            job.kill()
        self.jobs.clear()
        self.ports.clear()
        self.thawed.set()

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(timedelta(seconds=seconds))

    async def gate(self) -> None:
        await self.thawed.wait()


class ScriptedConnection:
    """Carries bytes in two queues; `peer` is the other end."""

    def __init__(self) -> None:
        self._incoming = Stdin()
        self.peer: ScriptedConnection | None = None

    async def read(self, limit: int = 65536) -> bytes:
        return await self._incoming.read()

    async def write(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer._incoming.write(data)

    async def close_write(self) -> None:
        if self.peer is not None:
            self.peer._incoming.close()

    async def close(self) -> None:
        await self.close_write()
        self._incoming.close()


class ScriptedFiles:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def stat(self, path: str, *, follow: bool = True, attributes: str = "") -> FileInfo:
        return self._with_attributes(self._disk.info(path, follow=follow), attributes)

    def _with_attributes(self, info: FileInfo, begin: str) -> FileInfo:
        kept = self._disk.find(info.path, follow=False)[1].attributes
        wanted = {name: value for name, value in kept.items() if begin and name.startswith(begin)}
        return replace(info, attributes=wanted)

    async def list(self, path: str, *, depth: int = 1) -> AsyncIterator[FileInfo]:
        for info in self._disk.below(path, depth):
            yield info

    async def list_page(
        self, path: str, *, depth: int = 1, after: bytes | None = None, limit: int, attributes: str = ""
    ) -> ListingPage:
        found = {os.fsencode(info.path): info for info in self._disk.below(path, depth)}
        names = sorted(name for name in found if after is None or name > after)
        kept = names[:limit]
        more = len(names) > len(kept)
        return ListingPage(
            files=[self._with_attributes(found[name], attributes) for name in kept],
            next_after=kept[-1] if more and kept else None,
        )

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        _, node = self._disk.find(path)
        if node.kind is FileKind.DIRECTORY:
            raise IsADirectory(path=path, errno_name="EISDIR")
        if node.kind is not FileKind.FILE:
            raise NotARegularFile(path=path, errno_name="EINVAL")
        data = node.data[offset:] if length is None else node.data[offset : offset + length]
        for start in range(0, len(data), CHUNK):
            yield data[start : start + CHUNK]

    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        parents: bool = True,
        owner: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> FileInfo:
        whole = bytearray()
        async for chunk in chunks:
            whole += chunk
        with self._made_by(owner):
            info = self._disk.write(path, bytes(whole), mode=mode, parents=parents)
        _, node = self._disk.find(path)
        node.attributes = {name: value.encode() for name, value in (attributes or {}).items()}
        return info

    async def mkdir(
        self, path: str, *, mode: int = 0o755, parents: bool = True, owner: str | None = None
    ) -> None:
        with self._made_by(owner):
            self._disk.mkdir(path, mode, parents=parents)

    @contextlib.contextmanager
    def _made_by(self, owner: str | None) -> Iterator[None]:
        if owner is not None and owner not in USERS:
            raise InvalidRequest(field="user", why=f"no user {owner!r} in the sandbox")
        self._disk.maker = USERS[owner or "root"]
        try:
            yield
        finally:
            self._disk.maker = 0

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        self._disk.move(source, target, overwrite=overwrite)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        self._disk.remove(path, recursive=recursive)

    async def watch(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        real, _ = self._disk.find(path)
        heard: asyncio.Queue[FileEvent] = asyncio.Queue()
        prefix = real.rstrip("/") + "/"

        def listen(event: FileEvent) -> None:
            below = event.path.removeprefix(prefix)
            is_below = event.path.startswith(prefix) and (recursive or "/" not in below)
            if is_below or event.path == real:
                heard.put_nowait(event)

        leave = self._disk.listen(listen)
        try:
            while True:
                yield await heard.get()
        finally:
            leave()


class ScriptedGuest:
    def __init__(self, box: Box) -> None:
        self._box = box
        self._files = ScriptedFiles(box.disk)

    @property
    def files(self) -> ScriptedFiles:
        self._alive()
        return self._files

    async def run(self, command: Command, *, process_id: str | None = None) -> ScriptedProcess:
        self._alive()
        self._check(command)
        box = self._box
        process_id = process_id or new_id("prc")
        if process_id in box.jobs:
            raise Conflict(why=f"process {process_id} exists already")
        box.pids += 1
        job = Job(process_id=process_id, pid=box.pids, command=command, started_at=time.time())
        if not command.has_stdin and command.terminal is None:
            job.stdin.close()
        box.jobs[process_id] = job
        self._forget_old()
        process = ScriptedProcess(job, self._drop)
        job.begin(lambda: self._shell(job).run_argv(list(command.argv)))
        return process

    async def attach(self, process_id: str) -> ScriptedProcess:
        self._alive()
        return ScriptedProcess(self._job(process_id), self._drop)

    async def feed(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        self._alive()
        feed_job(self._job(process_id), data, close=close, offset=offset)

    async def processes(self) -> Sequence[ProcessInfo]:
        self._alive()
        return [job.info() for job in self._box.jobs.values()]

    async def forget(self, process_id: str) -> None:
        if self._job(process_id).exit is None:
            raise Conflict(why=f"process {process_id} still runs")
        self._drop(process_id)

    async def connect(self, port: int) -> ScriptedConnection:
        self._alive()
        if (serve := self._box.ports.get(port)) is None:
            raise GuestRefused(path=f"127.0.0.1:{port}", errno_name="ECONNREFUSED")
        near, far = ScriptedConnection(), ScriptedConnection()
        near.peer, far.peer = far, near
        serve(far)
        return near

    async def listen(self, port: int) -> SilentRelay:
        self._alive()
        return SilentRelay()

    async def unlisten(self, port: int) -> None:
        self._alive()

    async def ping(self) -> None:
        self._alive()

    def _alive(self) -> None:
        if self._box.presence not in (Presence.RUNNING, Presence.FROZEN):
            raise BackendLost(why=f"the sandbox is {self._box.presence.value}")

    def _check(self, command: Command) -> None:
        if command.user not in USERS:
            raise InvalidRequest(field="user", why=f"no user {command.user!r} in the sandbox")
        _, folder = self._box.disk.find(command.cwd)
        if folder.kind is not FileKind.DIRECTORY:
            raise NotADirectory(path=command.cwd, errno_name="ENOTDIR")
        program = command.argv[0]
        if program.rsplit("/", 1)[-1] not in (*PROGRAMS, "sh", "bash"):
            raise PathNotFound(path=program, errno_name="ENOENT")

    def _job(self, process_id: str) -> Job:
        return or_not_found(self._box.jobs.get(process_id), what="process", id=process_id)

    def _drop(self, process_id: str) -> None:
        self._box.jobs.pop(process_id, None)

    def _forget_old(self) -> None:
        ended = [process_id for process_id, job in self._box.jobs.items() if job.exit is not None]
        for process_id in ended[:-KEEP_ENDED]:
            self._drop(process_id)

    def _shell(self, job: Job) -> Shell:
        box = self._box
        programs: dict[str, Program] = {**PROGRAMS, "echo-server": self._serve_echo}
        return Shell(
            job=job,
            disk=box.disk,
            variables=dict(job.command.env),
            cwd=job.command.cwd,
            user=job.command.user,
            stdin=job.stdin,
            out=ring_writer(job, Stream.STDOUT),
            err=ring_writer(job, Stream.STDOUT if job.command.terminal else Stream.STDERR),
            gate=box.gate,
            sleep=box.sleep,
            programs=programs,
            answers=dict(box.answers),
        )

    async def _serve_echo(self, shell: Shell, words: list[str]) -> int:
        port = int(words[0])

        async def echo(connection: ScriptedConnection) -> None:
            with contextlib.suppress(GuestRefused):
                while data := await connection.read():
                    await connection.write(data)
            await connection.close_write()

        def serve(connection: ScriptedConnection) -> None:
            task = asyncio.get_running_loop().create_task(echo(connection))
            shell.job.children.add(task)
            task.add_done_callback(shell.job.children.discard)

        self._box.ports[port] = serve
        await shell.out(b"listening\n")
        try:
            await asyncio.Event().wait()
        finally:
            self._box.ports.pop(port, None)
        return 0


class SilentRelay:
    """Never yields a connection: no script of the fake connects outwards."""

    def __init__(self) -> None:
        self._closed = asyncio.Event()

    async def next_call(self) -> int:
        await self._closed.wait()
        raise BackendLost(why="the relay was closed")

    async def accept(self, call: int) -> Connection:
        raise GuestRefused(path=f"call {call}", errno_name="ENOENT")

    async def close(self) -> None:
        self._closed.set()
