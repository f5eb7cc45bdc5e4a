"""Implements `Guest` over the way to a supervisor's listening socket.

Stateless and cheap to make: every operation dials its own line, so nothing is lost when the server restarts.

A `SupervisorConnection` is a byte stream to a port inside a sandbox.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from sandboxer.backends.guest import INSIDE_SOCKET, Command, Connection, Guest, HandedOver, ProcessInfo
from sandboxer.backends.launch import Door
from sandboxer.backends.supervisor.codec import (
    MAX_PAYLOAD,
    VERSION_TAKEN,
    Fields,
    Flag,
    Frame,
    Tag,
    field,
    fields,
    frame,
    refusal,
    text,
    u32,
    u64,
)
from sandboxer.backends.supervisor.files import ANSWER_S, WORK_S, SupervisorFiles
from sandboxer.backends.supervisor.line import Gate, Line, Peer
from sandboxer.backends.supervisor.process import SupervisorProcess, feed_silently, read_exit
from sandboxer.kernel.errors import (
    BackendLost,
    GuestMisbehaved,
    GuestRefused,
    InvalidRequest,
    NotAvailable,
    TooLarge,
)
from sandboxer.kernel.values import new_id

# Of output: nothing that is kept, only what comes from now on.
_FROM_NOW = (1 << 64) - 1
# What an announcement says of the socket in `INSIDE`.
_PORT_INSIDE = 65536
MAX_ITEMS = 4096
# And together; what a process was started with is in its item, at most 256 KiB.
MAX_ITEM_BYTES = 4 * 1024 * 1024
OnKill = Callable[[], Awaitable[None]]


class SupervisorGuest(Guest):
    def __init__(
        self,
        door: Door,
        *,
        answer_s: float = ANSWER_S,
        work_s: float = WORK_S,
        gate: Gate | None = None,
    ) -> None:
        self._peer = Peer(path=door, answer_s=answer_s, work_s=work_s, gate=gate)
        self._files = SupervisorFiles(self._peer)

    @property
    def files(self) -> SupervisorFiles:
        return self._files

    async def run(
        self,
        command: Command,
        *,
        process_id: str | None = None,
        cgroup_fd: int | None = None,
        on_kill: OnKill | None = None,
        forget: bool = False,
    ) -> SupervisorProcess:
        """Runs a command. `cgroup_fd` is a cgroup.procs that the child enters before exec; `forget`
        removes the process once its exit was read.
        """
        process_id = process_id or new_id("prc")
        flags = Flag.FORGET if forget or not command.keep else Flag(0)
        if cgroup_fd is not None:
            flags |= Flag.CGROUP
        request = run_request(command, process_id, flags)
        line = await self._peer.dial(request, passed_fd=cgroup_fd)
        facts = {"subject": command.argv[0], "cwd": command.cwd, "user": command.user}
        return await self._started(line, process_id, on_kill, facts)

    async def attach(
        self, process_id: str, *, on_kill: OnKill | None = None, stdout_from: int = 0, stderr_from: int = 0
    ) -> SupervisorProcess:
        """Attaches to a process. `*_from` are the bytes of each stream that the caller already has."""
        payload = text(Tag.ID, process_id)
        payload += u64(Tag.FROM_STDOUT, stdout_from) + u64(Tag.FROM_STDERR, stderr_from)
        line = await self._peer.dial(frame(Frame.ATTACH, payload))
        return await self._started(line, process_id, on_kill, {"subject": process_id})

    async def _started(
        self, line: Line, process_id: str, on_kill: OnKill | None, facts: dict[str, str]
    ) -> SupervisorProcess:
        try:
            kind, payload = await line.next(self._peer.answer_s)
            if kind == Frame.ERROR:
                raise refusal(payload, **facts)
            if kind != Frame.STARTED:
                raise GuestMisbehaved(why=f"frame {kind:#x} instead of STARTED")
            answer = Fields(payload)
            pid = answer.u32(Tag.PID, most=1 << 22)
            stdin_bytes = answer.u64(Tag.TAKEN) if Tag.TAKEN in answer else None
            return SupervisorProcess(
                line, self._ask, process_id=process_id, pid=pid, stdin_bytes=stdin_bytes, on_kill=on_kill
            )
        except BaseException:
            line.close()
            raise

    async def feed(
        self, process_id: str, data: bytes, *, close: bool = False, offset: int | None = None
    ) -> None:
        payload = text(Tag.ID, process_id) + u32(Tag.FLAGS, Flag.INPUT)
        # An older guest knows no attachment for input only: what it says of output is thrown away.
        payload += u64(Tag.FROM_STDOUT, _FROM_NOW) + u64(Tag.FROM_STDERR, _FROM_NOW)
        if offset is not None:
            payload += u64(Tag.OFFSET, offset)
        line = await self._peer.dial(frame(Frame.ATTACH, payload))
        async with await self._started(line, process_id, None, {"subject": process_id}) as process:
            if line.version >= VERSION_TAKEN:
                await process.write_stdin(data)
                if close:
                    await process.close_stdin()
                return
            if offset is not None:
                raise NotAvailable(what="an offset in stdin", why="the sandbox has an older supervisor")
            await feed_silently(line, data, close=close, process_id=process_id)
        # It closed the line because it was done with it, and not because it died.
        await self.ping()

    async def processes(self) -> Sequence[ProcessInfo]:
        found = await self._exchange(Frame.LIST, b"", subject="processes", items=Frame.PROCESS)
        return [_process_info(payload) for payload in found]

    async def forget(self, process_id: str) -> None:
        await self._ask(Frame.FORGET, text(Tag.ID, process_id), subject=process_id)

    async def ping(self) -> None:
        await self._ask(Frame.PING, b"", subject="ping")

    async def connect(self, port: int) -> Connection:
        _check_port(port)
        return await self._stream(frame(Frame.CONNECT, u32(Tag.PORT, port)), subject=f"port {port}")

    async def connect_socket(self, path: str) -> Connection:
        return await self._stream(frame(Frame.CONNECT, text(Tag.PATH, path)), subject=path)

    async def listen(self, port: int) -> SupervisorRelay:
        _check_port(port)
        request = frame(Frame.LISTEN, u32(Tag.PORT, port))
        line = await self._dial_done(request, subject=f"port {port}", is_raw=False)
        return SupervisorRelay(line, port, self._accept)

    async def unlisten(self, port: int) -> None:
        _check_port(port)
        try:
            await self._ask(Frame.UNLISTEN, u32(Tag.PORT, port), subject=f"port {port}")
        except GuestRefused as error:
            if error.facts.get("errno_name") != "ENOENT":
                raise

    async def listen_inside(self) -> SupervisorRelay:
        request = frame(Frame.LISTEN, text(Tag.PATH, INSIDE_SOCKET))
        try:
            line = await self._dial_done(request, subject=INSIDE_SOCKET, is_raw=False)
        except GuestRefused as error:
            if error.facts.get("errno_name") in ("EINVAL", "ENOSYS"):
                raise NotAvailable(
                    what="the API from inside", why="the sandbox has an older supervisor"
                ) from None
            raise
        return SupervisorRelay(line, _PORT_INSIDE, self._accept)

    async def unlisten_inside(self) -> None:
        try:
            await self._ask(Frame.UNLISTEN, text(Tag.PATH, INSIDE_SOCKET), subject=INSIDE_SOCKET)
        except GuestRefused as error:
            if error.facts.get("errno_name") != "ENOENT":
                raise

    async def describe(self, files: Mapping[str, str]) -> None:
        wanted = [
            frame(Frame.DESCRIBE, text(Tag.PATH, name) + field(Tag.CONTENT, content.encode()))
            for name, content in files.items()
        ]
        line = await self._peer.dial(b"".join(wanted))
        try:
            for name in files:
                kind, payload = await line.next(self._peer.answer_s)
                if kind == Frame.ERROR:
                    raise refusal(payload, subject=name)
                if kind != Frame.DONE:
                    raise GuestMisbehaved(why=f"frame {kind:#x} instead of DONE")
        finally:
            line.close()

    async def _accept(self, call: int) -> Connection:
        return await self._stream(frame(Frame.ACCEPT, u64(Tag.CALL, call)), subject=f"call {call}")

    async def _stream(self, request: bytes, *, subject: str) -> Connection:
        return SupervisorConnection(await self._dial_done(request, subject=subject, is_raw=True))

    async def _dial_done(self, request: bytes, *, subject: str, is_raw: bool) -> Line:
        """Returns a line on which DONE was the answer, for further use."""
        line = await self._peer.dial(request, is_raw=is_raw)
        try:
            # Twice: the guest itself waits up to 10 s for a port to answer.
            kind, payload = await line.next(self._peer.answer_s * 2)
            if kind == Frame.ERROR:
                raise refusal(payload, subject=subject)
            if kind != Frame.DONE:
                raise GuestMisbehaved(why=f"frame {kind:#x} instead of DONE")
        except BaseException:
            line.close()
            raise
        return line

    async def _ask(self, kind: Frame, payload: bytes, *, subject: str) -> None:
        await self._exchange(kind, payload, subject=subject)

    async def _exchange(
        self, kind: Frame, payload: bytes, *, subject: str, items: Frame | None = None
    ) -> list[bytes]:
        """Yields the items of an answer, up to DONE."""
        found: list[bytes] = []
        size = 0
        line = await self._peer.dial(frame(kind, payload))
        try:
            while True:
                answer, body = await line.next(self._peer.answer_s)
                if answer == Frame.DONE:
                    return found
                if answer == Frame.ERROR:
                    raise refusal(body, subject=subject)
                size += len(body)
                if answer != items or len(found) >= MAX_ITEMS:
                    raise GuestMisbehaved(why=f"frame {answer:#x} in an answer")
                if size > MAX_ITEM_BYTES:
                    raise TooLarge(what="The list of processes", limit=f"{MAX_ITEM_BYTES} bytes")
                found.append(body)
        finally:
            line.close()


def _check_port(port: int) -> None:
    if not 0 < port < 65536:
        raise InvalidRequest(field="port", why="must be between 1 and 65535")


def run_request(command: Command, process_id: str, flags: Flag) -> bytes:
    if not command.argv:
        raise InvalidRequest(field="argv", why="is empty")
    if command.has_stdin:
        flags |= Flag.STDIN
    parts = [text(Tag.ID, process_id), text(Tag.CWD, command.cwd), text(Tag.USER, command.user)]
    parts += [text(Tag.ARG, argument) for argument in command.argv]
    parts += [text(Tag.ENV, f"{name}={value}") for name, value in command.env.items()]
    if command.tag:
        parts.append(text(Tag.TAG, command.tag))
    if command.terminal:
        flags |= Flag.TERMINAL
        parts += [u32(Tag.COLS, command.terminal.cols), u32(Tag.ROWS, command.terminal.rows)]
    payload = b"".join([*parts, u32(Tag.FLAGS, flags)])
    if len(payload) > MAX_PAYLOAD:
        raise TooLarge(what="the command with its environment", limit=f"{MAX_PAYLOAD} bytes")
    return frame(Frame.RUN, payload)


def _process_info(payload: bytes) -> ProcessInfo:
    facts = Fields(payload)
    argv = [argument.decode(errors="surrogateescape") for tag, argument in fields(payload) if tag == Tag.ARG]
    has_ended = Tag.CODE in facts or Tag.SIGNAL in facts
    return ProcessInfo(
        process_id=facts.text(Tag.ID),
        pid=facts.u32(Tag.PID, most=1 << 22),
        argv=argv,
        tag=facts.text(Tag.TAG),
        started_at=facts.u64(Tag.STARTED_AT) / 1e9,
        has_terminal=bool(facts.u32(Tag.FLAGS) & Flag.TERMINAL),
        exit=read_exit(facts) if has_ended else None,
        deadline=None,
        stdin_bytes=facts.u64(Tag.TAKEN) if Tag.TAKEN in facts else None,
    )


class SupervisorConnection(Connection):
    def __init__(self, line: Line) -> None:
        self._line = line
        self._rest = b""
        self._ended = False

    async def read(self, limit: int = 65536) -> bytes:
        if not self._rest and not self._ended:
            try:
                kind, self._rest = await self._line.next(None)
            except BackendLost:
                # A relay that ends looks the same whether the server inside or the sandbox went away.
                self._ended = True
                return b""
            if kind != Frame.RAW:
                raise GuestMisbehaved(why=f"frame {kind:#x} in a relayed stream")
        piece, self._rest = self._rest[:limit], self._rest[limit:]
        return piece

    async def write(self, data: bytes) -> None:
        self._line.send(data)
        await self._line.drain()

    async def close_write(self) -> None:
        self._line.shut_write()

    async def close(self) -> None:
        """Closes the connection. What was written still arrives: whoever sends and hangs up at once loses
        nothing.
        """
        self._line.finish()

    def hand_over(self) -> HandedOver:
        """Returns the bare socket. This object cannot be used afterwards."""
        handed = self._line.hand_over()
        received, self._rest, self._ended = self._rest + handed.received, b"", True
        return HandedOver(handed.sock, received, handed.closed)


class SupervisorRelay:
    def __init__(self, line: Line, port: int, dial: Callable[[int], Awaitable[Connection]]) -> None:
        self._line = line
        self._port = port
        self._dial = dial

    async def next_call(self) -> int:
        kind, payload = await self._line.next(None)
        if kind != Frame.ANNOUNCE:
            raise GuestMisbehaved(why=f"frame {kind:#x} instead of an announcement")
        announced = Fields(payload)
        if announced.u32(Tag.PORT) != self._port:
            raise GuestMisbehaved(why="a call to a port that was not asked about")
        return announced.u64(Tag.CALL)

    async def accept(self, call: int) -> Connection:
        return await self._dial(call)

    async def close(self) -> None:
        self._line.close()
