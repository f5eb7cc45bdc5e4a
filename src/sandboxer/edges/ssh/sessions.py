"""Shells and commands over SSH: bytes of a channel are copied to a process inside, and its end is reported
back.
"""

from __future__ import annotations

import asyncio
import re
import signal

import asyncssh

from sandboxer.backends.guest import Exit, Process, Stream, TerminalSize
from sandboxer.edges.ssh.channels import Session, breathe
from sandboxer.edges.ssh.dependencies import HOME, Login
from sandboxer.kernel.errors import (
    BackendLost,
    IllegalTransition,
    InvalidRequest,
    PathNotFound,
    SandboxerError,
)
from sandboxer.sandboxes.lifecycle import LIVE, State
from sandboxer.sandboxes.use_cases.access import ActivityKind
from sandboxer.work.lines import SHELLS, Line, Wanted, launch

SSH_TAG = "@ssh"
_PIECE = 65536
_FAILED = 255
_LOOKS, _LOOK_S = 20, 0.1
_GONE = frozenset({State.EXPIRED, State.DESTROYING, State.DESTROYED})
_LARGEST = 4096
_LANGUAGE = re.compile(r"LANG|LC_[A-Z]{1,16}")
_PLAIN = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
_NAMES = {number.value: number.name.removeprefix("SIG") for number in signal.Signals}


async def serve_session(login: Login, channel: asyncssh.SSHServerProcess[bytes]) -> None:
    """Serves one shell or command. Errors are written to stderr, as sshd does."""
    try:
        if "\0" in (channel.command or ""):
            raise InvalidRequest(field="command", why="it holds a NUL")
        await login.count()
        activity = ActivityKind.EXEC if channel.term_type is None else ActivityKind.TERMINAL
        async with login.line(activity) as line:
            await _run(login, line, channel)
    except BackendLost as error:
        _tell(channel, await _words_after(login, error))
        channel.exit(_FAILED)
    except SandboxerError as error:
        _tell(channel, _words(error, login.sandbox_id))
        channel.exit(_FAILED)
    except asyncssh.Error:
        channel.close()


async def _run(login: Login, line: Line, channel: asyncssh.SSHServerProcess[bytes]) -> None:
    process = await _start(line, channel)
    ended: Exit | None = None
    lost: Exception | None = None
    try:
        async with process, asyncio.TaskGroup() as group:
            feeding = group.create_task(_feed(login, channel, process))
            leaving = group.create_task(_until_gone(channel))
            ended = await _pass_on(process, channel)
            feeding.cancel()
            leaving.cancel()
    except* (asyncssh.Error, ConnectionError):
        # The client went away.
        pass
    except* SandboxerError as found:
        # The sandbox went away.
        lost = found.exceptions[0]
    finally:
        if ended is None:
            await _hang_up(process)
    if lost is not None:
        raise lost
    if ended is not None:
        _end(channel, ended)


async def _start(line: Line, channel: asyncssh.SSHServerProcess[bytes]) -> Process:
    size = _size(channel.term_size[:2]) if channel.term_type is not None else None
    env = dict(line.env)
    # Only the client's language is passed on; other variables could change what runs.
    brought = {name: value for name, value in channel.env.items() if _LANGUAGE.fullmatch(name)}
    if channel.term_type is not None:
        brought["TERM"] = channel.term_type
    env |= {name: value for name, value in brought.items() if _PLAIN.fullmatch(value)}
    where, shell = HOME, SHELLS[0]
    while True:
        wanted = Wanted(shell=channel.command, cwd=where)
        if not channel.command:
            wanted = Wanted(argv=(shell, "-l"), cwd=where)
        try:
            return await launch(
                line.guest, wanted, env, tag=SSH_TAG, has_stdin=True, terminal=size, keep=False
            )
        except PathNotFound as error:
            if (missing := error.facts.get("path")) == where and where != "/":
                where = "/"
            elif missing == shell and shell != SHELLS[1] and not channel.command:
                shell = SHELLS[1]
            else:
                raise


async def _until_gone(channel: asyncssh.SSHServerProcess[bytes]) -> None:
    """Raises ConnectionLost when the client has left. To its command, an orderly leave looks like the end of
    input; without this the command would run on and be paid for.
    """
    await channel.channel.wait_closed()
    raise asyncssh.ConnectionLost("the client left")


async def _feed(login: Login, channel: asyncssh.SSHServerProcess[bytes], process: Process) -> None:
    """Passes on stdin, and changes of window size and signals, which arrive among it."""
    while True:
        try:
            data = await channel.stdin.read(_PIECE)
        except asyncssh.TerminalSizeChanged as change:
            _heard(channel)
            await login.wait_for_rate(1)
            await _resize(process, _size((change.width, change.height)))
            continue
        except asyncssh.SignalReceived as received:
            _heard(channel)
            await login.wait_for_rate(1)
            await _signal(process, received.signal)
            continue
        except (asyncssh.BreakReceived, asyncssh.misc.SoftEOFReceived):
            _heard(channel)
            continue
        try:
            if not data:
                await process.close_stdin()
                return
            await process.write_stdin(data)
        except SandboxerError:
            # It reads no more; its end is reported elsewhere.
            return


async def _pass_on(process: Process, channel: asyncssh.SSHServerProcess[bytes]) -> Exit | None:
    async for item in process.output():
        if isinstance(item, Exit):
            return item
        writer = channel.stdout if item.stream is Stream.STDOUT else channel.stderr
        writer.write(item.data)
        await writer.drain()
        await breathe(channel.channel.get_connection())
    return None


def _heard(channel: asyncssh.SSHServerProcess[bytes]) -> None:
    if isinstance(channel, Session):
        channel.heard()


async def _resize(process: Process, size: TerminalSize) -> None:
    try:
        await process.resize(size)
    except SandboxerError:
        # It has ended, or never had a terminal.
        return


async def _signal(process: Process, name: str) -> None:
    if (known := {text: number for number, text in _NAMES.items()}.get(name)) is not None:
        try:
            await process.signal(known)
        except SandboxerError:
            return


async def _hang_up(process: Process) -> None:
    """Ends processes as sshd does: what was left in the background on purpose (nohup, setsid) stays."""
    try:
        await process.signal(signal.SIGHUP)
    except SandboxerError:
        return


def _end(channel: asyncssh.SSHServerProcess[bytes], ended: Exit) -> None:
    if ended.reason is not None:
        _tell(channel, f"sandboxer: {ended.reason.value}")
    if ended.signal is not None and ended.signal in _NAMES:
        channel.exit_with_signal(_NAMES[ended.signal])
    else:
        channel.exit(ended.code)


def _tell(channel: asyncssh.SSHServerProcess[bytes], words: str) -> None:
    try:
        channel.stderr.write(words.encode("utf-8", "replace") + b"\r\n")
    except (asyncssh.Error, OSError):
        return


async def _words_after(login: Login, error: BackendLost) -> str:
    """Says why the processes ended. Whose account is suspended is not told to wake what was stopped."""
    try:
        await login.standing()
    except SandboxerError as shut:
        return f"sandboxer: {shut}"
    state = await _state_after(login)
    return _words(error, login.sandbox_id) if state is None else asleep(login.sandbox_id, state)


async def _state_after(login: Login) -> str | None:
    """Returns what became of the sandbox, which is recorded a moment after its processes end; None if it goes
    on.
    """
    for _ in range(_LOOKS):
        sandbox = login.dependencies.platform.sandboxes.repository.peek(login.sandbox_id)
        if sandbox is None or sandbox.state not in LIVE:
            return "gone" if sandbox is None or sandbox.state in _GONE else sandbox.state.value
        await asyncio.sleep(_LOOK_S)
    return None


def asleep(sandbox_id: str, state: str) -> str:
    wake = {"frozen": "thaw", "stopped": "resume", "reaped": "resume"}.get(state)
    hint = "" if wake is None else f" Wake it first: sandboxer {wake} {sandbox_id}"
    return f"sandboxer: {sandbox_id} is {state}.{hint}"


def _words(error: SandboxerError, sandbox_id: str) -> str:
    hint = error.facts.get("hint") or error.next_step
    if isinstance(error, IllegalTransition) and error.facts.get("state") in ("frozen", "stopped", "reaped"):
        return asleep(sandbox_id, str(error.facts["state"]))
    return f"sandboxer: {error} {hint}"


def _size(given: tuple[int, ...]) -> TerminalSize:
    """Returns the window size; a client without a window reports 0."""
    cols, rows = (min(max(0, number), _LARGEST) for number in given)
    return TerminalSize(cols=cols or 80, rows=rows or 24)
