"""Routes of commands, buffered or streamed, of background processes, and of terminals over WebSocket.

Running a command is the hottest route: one model in, one model out, no second validation. A terminal sends
bytes in binary frames and control messages in text frames; viewers may leave and return.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Annotated

from fastapi import Query, WebSocket
from pydantic import ValidationError
from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect, WebSocketState

from sandboxer.backends.guest import EndReason, Exit, Output, TerminalSize
from sandboxer.backends.guest import Process as GuestProcess
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.binding import Asked, AskedPathBody, bind
from sandboxer.edges.http.bodies import (
    EVENT_STREAM,
    EventStream,
    OutputEvents,
    ServerEvent,
    Texts,
    read_bytes,
)
from sandboxer.edges.http.disconnection import until_client_goes
from sandboxer.edges.http.idempotency import once
from sandboxer.edges.http.problems import invalid
from sandboxer.edges.http.requests import caller, platform_of
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import BackendLost, InvalidRequest, SandboxerError
from sandboxer.observe.traces import CURRENT, Span, command_environment
from sandboxer.wire.operations import inside as operations
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wire.processes import (
    OUTPUT_LIMIT_DEFAULT,
    STDIN_MAX,
    ExecExit,
    ExecResult,
    ExecStarted,
    Process,
    ProcessList,
    Resize,
    RunCommand,
    Runnable,
    SendSignal,
    StartProcess,
    StdinWritten,
    TerminalExit,
    TerminalList,
    TerminalProblem,
    TerminalReady,
    WriteStdin,
)
from sandboxer.wire.words import Problem, SandboxId
from sandboxer.work.exec import End, Run, Started
from sandboxer.work.lines import Wanted
from sandboxer.work.processes import Piece

_Asked = Asked[SandboxPath, operations.RunCommandQuery, RunCommand]


async def run_command(asked: _Asked) -> Response:
    runs = asked.platform.work.exec
    if asked.query.is_streamed or EVENT_STREAM in asked.request.headers.get("accept", ""):
        source = runs.stream(
            asked.path.sandbox_id,
            asked.caller,
            await _run(asked.body, asked.body.output_limit_bytes, asked.lease),
        )
        return EventStream(_output_events(source, asked))
    limit = OUTPUT_LIMIT_DEFAULT if asked.body.output_limit_bytes is None else asked.body.output_limit_bytes
    async with until_client_goes(asked.request.receive):
        run = await _run(asked.body, limit, asked.lease)
        result = await runs.run(asked.path.sandbox_id, asked.caller, run, asked.lease)
    _count(asked, result.end)
    texts = Texts()
    shown = from_record(
        ExecResult,
        result.end,
        stdout=texts.of(result.stdout, asked.body.encoding),
        stderr=texts.of(result.stderr, asked.body.encoding),
        reason=None if result.end.reason is None else result.end.reason.value,
        encoding=asked.body.encoding,
    )
    return texts.answer(shown)


def wanted(body: Runnable) -> Wanted:
    env = command_environment(body.env, is_asked=body.trace)
    return Wanted(shell=body.command, argv=body.argv, cwd=body.cwd, env=env, user=body.user)


async def bytes_of(text: str, encoding: str, lease: Lease, *, field: str) -> bytes:
    try:
        data = await read_bytes(text, encoding, lease)
    except ValueError:
        raise InvalidRequest(field=field, why="it is not base 64") from None
    if len(data) > STDIN_MAX:
        raise InvalidRequest(field=field, why=f"it is larger than {STDIN_MAX} bytes")
    return data


async def _run(body: RunCommand, limit: int | None, lease: Lease) -> Run:
    stdin = None
    if body.stdin is not None:
        stdin = await bytes_of(body.stdin, body.stdin_encoding, lease, field="stdin")
    return Run(wanted=wanted(body), timeout_s=body.timeout_s, stdin=stdin, output_limit=limit)


def _count(asked: _Asked, end: End) -> None:
    outcome = "timed_out" if end.timed_out else "failed" if end.exit_code else "ok"
    asked.platform.metrics.exec_seconds.labels(outcome).observe(end.duration_ms / 1000)
    if (spans := asked.platform.spans) is not None and (request := CURRENT.get()) is not None:
        ended = time.time_ns()
        spans.record(
            Span(
                name="exec",
                trace=request.command(),
                began_ns=ended - int(end.duration_ms * 1e6),
                ended_ns=ended,
                attributes={
                    "sandboxer.sandbox": asked.path.sandbox_id,
                    "sandboxer.timed_out": end.timed_out,
                    "process.exit.code": end.exit_code,
                },
                is_failed=end.exit_code != 0,
            )
        )


async def _output_events(
    source: AsyncGenerator[Started | Output | End], asked: _Asked
) -> AsyncIterator[ServerEvent]:
    outputs = OutputEvents(asked.body.encoding)
    async with aclosing(source) as items:
        async for item in items:
            match item:
                case Started():
                    shown = ExecStarted.model_construct(process_id=item.process_id, pid=item.pid)
                    yield ServerEvent("started", shown)
                case Output():
                    if event := outputs.piece(item):
                        yield event
                case End():
                    _count(asked, item)
                    for event in outputs.rest():
                        yield event
                    yield ServerEvent("exit", from_record(ExecExit, item))


async def start(asked: AskedPathBody[SandboxPath, StartProcess]) -> Response:
    async def act() -> Response:
        info = await asked.platform.work.processes.start(
            asked.path.sandbox_id,
            asked.caller,
            wanted(asked.body),
            tag=asked.body.tag,
            has_stdin=asked.body.has_stdin,
            timeout_s=asked.body.timeout_s,
        )
        return json_response(answers.process(info), 201)

    return await once(asked.request, act)


async def list_processes(asked: Asked[SandboxPath]) -> ProcessList:
    infos = await asked.platform.work.processes.list(asked.path.sandbox_id, asked.caller)
    return ProcessList.model_construct(processes=[answers.process(info) for info in infos])


async def get(asked: Asked[operations.ProcessPath]) -> Process:
    info = await asked.platform.work.processes.get(asked.path.sandbox_id, asked.caller, asked.path.process_id)
    return answers.process(info)


async def attach(asked: Asked[operations.ProcessPath, operations.AttachProcessQuery]) -> Response:
    seen_out, _, seen_err = (asked.query.last_event_id or asked.query.after or "0.0").partition(".")
    source = asked.platform.work.processes.output(
        asked.path.sandbox_id,
        asked.caller,
        asked.path.process_id,
        stdout_from=int(seen_out),
        stderr_from=int(seen_err),
        follow=asked.query.follow,
    )
    await asked.platform.work.processes.get(asked.path.sandbox_id, asked.caller, asked.path.process_id)
    outputs = OutputEvents(asked.query.encoding, stdout_at=int(seen_out), stderr_at=int(seen_err))
    return EventStream(_events(source, outputs), begin_at_once=True)


async def write_stdin(asked: AskedPathBody[operations.ProcessPath, WriteStdin]) -> StdinWritten:
    data = await bytes_of(asked.body.data, asked.body.encoding, asked.lease, field="data")
    async with until_client_goes(asked.request.receive):
        await asked.platform.work.processes.write_stdin(
            asked.path.sandbox_id,
            asked.caller,
            asked.path.process_id,
            data,
            close=asked.body.close,
            offset=asked.body.offset,
        )
    return StdinWritten(written_bytes=len(data), closed=asked.body.close)


async def close_stdin(asked: Asked[operations.ProcessPath]) -> None:
    async with until_client_goes(asked.request.receive):
        await asked.platform.work.processes.write_stdin(
            asked.path.sandbox_id, asked.caller, asked.path.process_id, b"", close=True
        )


async def signal(asked: AskedPathBody[operations.ProcessPath, SendSignal]) -> None:
    await asked.platform.work.processes.signal(
        asked.path.sandbox_id, asked.caller, asked.path.process_id, asked.body.signal, tree=asked.body.tree
    )


async def wait(asked: Asked[operations.ProcessPath, operations.WaitProcessQuery]) -> Process:
    async with until_client_goes(asked.request.receive):
        info = await asked.platform.work.processes.wait(
            asked.path.sandbox_id, asked.caller, asked.path.process_id, timeout_s=asked.query.timeout_s
        )
    return answers.process(info)


async def end(asked: Asked[operations.ProcessPath]) -> None:
    await asked.platform.work.processes.end(asked.path.sandbox_id, asked.caller, asked.path.process_id)


async def _events(source: AsyncIterator[Piece | Exit], outputs: OutputEvents) -> AsyncIterator[ServerEvent]:
    async with aclosing(source) as items:  # type: ignore[type-var]
        async for item in items:
            if isinstance(item, Piece):
                if event := outputs.piece(item.output):
                    yield event
                continue
            for event in outputs.rest():
                yield event
            yield ServerEvent("exit", _exit(item), outputs.position)
            return
    for event in outputs.rest():
        yield event


def _exit(ended: Exit) -> ExecExit:
    return ExecExit.model_construct(
        exit_code=ended.code,
        timed_out=ended.reason is EndReason.TIMED_OUT,
        truncated=False,
        duration_ms=None,
        reason=None if ended.reason is None else ended.reason.value,
    )


# Interactive, so that it reads ~/.bashrc and shows a prompt.
SHELL = ("/bin/sh", "-c", "if [ -x /bin/bash ]; then exec /bin/bash -i; else exec /bin/sh -i; fi")
CLOSE_DONE, CLOSE_BAD_WORD, CLOSE_BROKEN = 1000, 1003, 1011


async def open_terminal(
    websocket: WebSocket, sandbox_id: SandboxId, query: Annotated[operations.OpenTerminalQuery, Query()]
) -> None:
    size = TerminalSize(cols=query.cols, rows=query.rows)
    terminals = platform_of(websocket).work.terminals
    who = caller(websocket)
    opened: AbstractAsyncContextManager[GuestProcess]
    if query.terminal_id is not None:
        opened = terminals.attach(sandbox_id, who, query.terminal_id, size)
    else:
        argv = SHELL if query.command is None else None
        wanted = Wanted(shell=query.command, argv=argv, cwd=query.cwd, user=query.user)
        opened = terminals.open(sandbox_id, who, wanted, size)
    async with _reporting_problems(websocket), opened as process:
        await websocket.accept()
        ready = TerminalReady(terminal_id=process.process_id, reattached=query.terminal_id is not None)
        await websocket.send_text(ready.model_dump_json())
        await _serve_terminal(websocket, process)


async def needs_upgrade(asked: Asked[SandboxPath, operations.OpenTerminalQuery]) -> Response:
    headers = {"upgrade": "websocket", "connection": "upgrade"}
    request_id = problems.request_id_of(asked.request.scope)
    return problems.framework_response(426, "A terminal needs a WebSocket.", request_id, headers)


async def list_terminals(asked: Asked[SandboxPath]) -> TerminalList:
    infos = await asked.platform.work.terminals.list(asked.path.sandbox_id, asked.caller)
    return TerminalList.model_construct(terminals=[answers.terminal(info) for info in infos])


async def end_terminal(asked: Asked[operations.TerminalPath]) -> None:
    await asked.platform.work.terminals.end(asked.path.sandbox_id, asked.caller, asked.path.terminal_id)


async def _serve_terminal(websocket: WebSocket, process: GuestProcess) -> None:
    """Serves both directions until the program ends or the viewer leaves; the program outlives the viewer."""
    async with asyncio.TaskGroup() as group:
        typing = group.create_task(_pass_input(websocket, process))
        showing = group.create_task(_show_output(websocket, process))
        await asyncio.wait({typing, showing}, return_when=asyncio.FIRST_COMPLETED)
        typing.cancel()
        showing.cancel()


async def _show_output(websocket: WebSocket, process: GuestProcess) -> None:
    async for item in process.output():
        if isinstance(item, Exit):
            reason = None if item.reason is None else item.reason.value
            await websocket.send_text(TerminalExit(exit_code=item.code, reason=reason).model_dump_json())
            await websocket.close(CLOSE_DONE)
            return
        await websocket.send_bytes(item.data)
    raise BackendLost(why="the terminal's output ended without its exit")


async def _pass_input(websocket: WebSocket, process: GuestProcess) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if data := message.get("bytes"):
            await process.write_stdin(data)
        elif message.get("text"):
            await _obey_message(message["text"], process)


async def _obey_message(text: str, process: GuestProcess) -> None:
    try:
        word = Resize.model_validate_json(text)
    except ValidationError as error:
        raise invalid([dict(found) for found in error.errors(include_url=False)], None) from None
    await process.resize(TerminalSize(cols=word.cols, rows=word.rows))


@asynccontextmanager
async def _reporting_problems(websocket: WebSocket) -> AsyncIterator[None]:
    """Reports errors as problems: as an HTTP answer before the upgrade, as a message after it."""
    try:
        yield
    except* WebSocketDisconnect:
        pass
    except* SandboxerError as group:
        await _tell_problem(websocket, _first_error(group))


async def _tell_problem(websocket: WebSocket, error: SandboxerError) -> None:
    request_id, place = problems.request_id_of(websocket.scope), websocket.path_params
    if websocket.client_state is WebSocketState.CONNECTING:
        await websocket.send_denial_response(problems.response(error, request_id, place=place))
        return
    if websocket.application_state is not WebSocketState.CONNECTED:
        return
    shown = TerminalProblem(problem=Problem.model_validate(problems.document(error, request_id, place)))
    try:
        await websocket.send_text(shown.model_dump_json())
        await websocket.close(CLOSE_BAD_WORD if isinstance(error, InvalidRequest) else CLOSE_BROKEN)
    except (WebSocketDisconnect, RuntimeError):
        # The viewer left meanwhile.
        return


def _first_error(group: BaseExceptionGroup[SandboxerError]) -> SandboxerError:
    error = group.exceptions[0]
    return _first_error(error) if isinstance(error, BaseExceptionGroup) else error


BINDINGS = (
    bind(operations.RUN_COMMAND, run_command),
    bind(operations.START_PROCESS, start),
    bind(operations.LIST_PROCESSES, list_processes),
    bind(operations.GET_PROCESS, get),
    bind(operations.ATTACH_PROCESS, attach),
    bind(operations.WRITE_STDIN, write_stdin),
    bind(operations.CLOSE_STDIN, close_stdin),
    bind(operations.SIGNAL_PROCESS, signal),
    bind(operations.WAIT_PROCESS, wait),
    bind(operations.END_PROCESS, end),
    bind(operations.OPEN_TERMINAL, needs_upgrade, websocket=open_terminal),
    bind(operations.LIST_TERMINALS, list_terminals),
    bind(operations.END_TERMINAL, end_terminal),
)
