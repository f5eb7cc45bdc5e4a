"""envd's processes: commands and terminals, started, followed, fed, resized and ended.

A command is a background process of ours, which goes on when its client leaves; its time limit is the
client's, in the header of the stream that started it.
"""

from __future__ import annotations

import base64
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from sandboxer.backends.guest import EndReason, Exit, Output, ProcessInfo, Stream, TerminalSize
from sandboxer.edges.e2b.answers import answer
from sandboxer.edges.e2b.connect import END, STREAM, ConnectStream, envelope, messages, single_message
from sandboxer.edges.e2b.sandboxes import bind_inside
from sandboxer.edges.e2b.users import environment_of, home_of, path_for, user_of
from sandboxer.edges.http.answers import printable
from sandboxer.edges.http.binding import Asked, AskedPathBody
from sandboxer.edges.http.disconnection import until_client_goes
from sandboxer.edges.http.routes.work.files import body_of
from sandboxer.kernel.errors import InvalidRequest, PathNotFound, Refused, or_not_found
from sandboxer.wire.e2b import envd, operations
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wire.processes import TIMEOUT_MAX_S
from sandboxer.work.exec import Started
from sandboxer.work.lines import Wanted
from sandboxer.work.processes import Piece

Message = Mapping[str, Any]
_QUIET: Message = {"event": {"keepalive": {}}}
_ANY = AskedPathBody[SandboxPath, Any]
_NOTHING = envd.Empty()


async def start(asked: Asked[SandboxPath]) -> Response:
    body = single_message(await asked.request.body(), envd.StartProcess)
    user, size = user_of(asked.request), None if body.pty is None else body.pty.size
    wanted = Wanted(
        argv=[body.process.cmd, *body.process.args],
        cwd=path_for(body.process.cwd or "", user),
        env={
            "HOME": home_of(user),
            **environment_of(asked.path.sandbox_id),
            **body.process.envs,
        },
        user=user,
    )
    source = asked.platform.work.processes.run(
        asked.path.sandbox_id,
        asked.caller,
        wanted,
        tag=body.tag or "",
        has_stdin=body.stdin or size is not None,
        terminal=None if size is None else TerminalSize(cols=size.cols, rows=size.rows),
        timeout_s=_timeout_s(asked),
    )
    return ConnectStream(asked.request, _events(source, "stdout" if size is None else "pty"), _QUIET)


async def attach(asked: Asked[SandboxPath]) -> Response:
    body = single_message(await asked.request.body(), envd.Selected)
    found = await _find(asked, body.process)
    source = asked.platform.work.processes.output(asked.path.sandbox_id, asked.caller, found.process_id)
    stdout = "pty" if found.has_terminal else "stdout"
    return ConnectStream(asked.request, _events(source, stdout, first=found.pid), _QUIET)


async def list_processes(asked: AskedPathBody[SandboxPath, envd.Empty]) -> Response:
    infos = await asked.platform.work.processes.list(asked.path.sandbox_id, asked.caller)
    shown = [_shown(info) for info in infos if info.exit is None]
    return answer(envd.ProcessList.model_construct(processes=shown))


async def send_input(asked: AskedPathBody[SandboxPath, envd.SendInput]) -> Response:
    found = await _find(asked, asked.body.process)
    await _write(asked, found.process_id, asked.body.input.data)
    return answer(_NOTHING)


async def stream_input(asked: Asked[SandboxPath]) -> Response:
    process_id: str | None = None
    async for message in messages(body_of(asked.request), envd.InputMessage, asked.lease):
        if message.start is not None:
            process_id = (await _find(asked, message.start.process)).process_id
        elif message.data is not None:
            if process_id is None:
                raise InvalidRequest(field="start", why="the first message names the process")
            await asked.platform.work.processes.write_stdin(
                asked.path.sandbox_id, asked.caller, process_id, message.data.input.data
            )
    return Response(envelope(b"{}") + envelope(b"{}", END), media_type=STREAM)


async def close_stdin(asked: AskedPathBody[SandboxPath, envd.Selected]) -> Response:
    found = await _find(asked, asked.body.process)
    await _write(asked, found.process_id, b"", close=True)
    return answer(_NOTHING)


async def send_signal(asked: AskedPathBody[SandboxPath, envd.SendSignal]) -> Response:
    found = await _find(asked, asked.body.process)
    name = asked.body.signal.removeprefix("SIGNAL_SIG")
    await asked.platform.work.processes.signal(
        asked.path.sandbox_id, asked.caller, found.process_id, name, tree=name == "KILL"
    )
    return answer(_NOTHING)


async def update(asked: AskedPathBody[SandboxPath, envd.UpdateProcess]) -> Response:
    found = await _find(asked, asked.body.process)
    if asked.body.pty is not None:
        size = TerminalSize(cols=asked.body.pty.size.cols, rows=asked.body.pty.size.rows)
        await asked.platform.work.processes.resize(
            asked.path.sandbox_id, asked.caller, found.process_id, size
        )
    return answer(_NOTHING)


async def _write(asked: _ANY, process_id: str, data: bytes, *, close: bool = False) -> None:
    async with until_client_goes(asked.request.receive):
        await asked.platform.work.processes.write_stdin(
            asked.path.sandbox_id, asked.caller, process_id, data, close=close
        )


async def _find(asked: _ANY, wanted: envd.Selector) -> ProcessInfo:
    """Returns the running process that a message names by its pid or its tag. Raises NotFound."""
    infos = await asked.platform.work.processes.list(asked.path.sandbox_id, asked.caller)
    running = (info for info in infos if info.exit is None)
    if wanted.pid is not None:
        found = next((info for info in running if info.pid == wanted.pid), None)
    else:
        found = next((info for info in running if wanted.tag and info.tag == wanted.tag), None)
    return or_not_found(found, what="process", id=str(wanted.pid or wanted.tag))


def _timeout_s(asked: _ANY) -> float | None:
    given = asked.request.headers.get("connect-timeout-ms", "")
    if not (given.isascii() and given.isdigit()) or not given.strip("0"):
        return None
    # As a float: what has thousands of digits is no int to Python.
    return min(float(given) / 1000, TIMEOUT_MAX_S)


async def _events(
    source: AsyncIterator[Started | Output | Piece | Exit], stdout: str, *, first: int | None = None
) -> AsyncIterator[Message]:
    if first is not None:
        yield {"event": {"start": {"pid": first}}}
    try:
        async with aclosing(source) as items:  # type: ignore[type-var]
            async for item in items:
                yield {"event": _event(item, stdout)}
    except PathNotFound as error:
        # The folder or the program: E2B calls that a wrong argument.
        raise InvalidRequest(field="process", why=f"there is no {error.facts.get('path')}") from error


def _event(item: Started | Output | Piece | Exit, stdout: str) -> Message:
    if isinstance(item, Started):
        return {"start": {"pid": item.pid}}
    if isinstance(item, Exit):
        return {"end": _end(item)}
    output = item.output if isinstance(item, Piece) else item
    name = stdout if output.stream is Stream.STDOUT else "stderr"
    return {"data": {name: base64.b64encode(output.data).decode()}}


def _end(ended: Exit) -> Message:
    """Returns how it ended, in the words of Go's library, which envd is written in."""
    if ended.reason is EndReason.TIMED_OUT:
        raise Refused(why="the command took longer than its time limit", reason="timed_out")
    if ended.signal is not None:
        status = f"signal: {signal.strsignal(ended.signal) or ended.signal}".lower()
        return {"exitCode": -1, "exited": False, "status": status, "error": status}
    status = f"exit status {ended.code}"
    shown = {"exitCode": ended.code, "exited": True, "status": status}
    return {**shown, "error": status} if ended.code else shown


def _shown(info: ProcessInfo) -> envd.ShownProcess:
    cmd, *args = map(printable, info.argv)
    config = envd.ShownConfig.model_construct(cmd=cmd, args=args)
    return envd.ShownProcess.model_construct(config=config, pid=info.pid, tag=printable(info.tag) or None)


BINDINGS = (
    bind_inside(operations.START, start),
    bind_inside(operations.ATTACH, attach),
    bind_inside(operations.PROCESSES, list_processes),
    bind_inside(operations.INPUT, send_input),
    bind_inside(operations.STREAM_INPUT, stream_input),
    bind_inside(operations.CLOSE_STDIN, close_stdin),
    bind_inside(operations.SIGNAL, send_signal),
    bind_inside(operations.UPDATE, update),
)
