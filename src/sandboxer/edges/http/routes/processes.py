"""Routes of commands, buffered or streamed, and of background processes.

Running a command is the hottest route: one model in, one model out, no second validation.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from starlette.responses import Response

from sandboxer.backends.guest import EndReason, Exit, Output
from sandboxer.edges.http import answers
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.bodies import Texts, read_bytes
from sandboxer.edges.http.disconnection import until_client_goes
from sandboxer.edges.http.idempotency import once
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.sse import EVENT_STREAM, EventStream, OutputEvents, ServerEvent
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.observe.traces import CURRENT, Span, command_environment
from sandboxer.wire.operations import processes as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import ProcessPath, SandboxPath
from sandboxer.wire.operations.processes import AttachProcessQuery, RunCommandQuery, WaitProcessQuery
from sandboxer.wire.processes import (
    OUTPUT_LIMIT_DEFAULT,
    STDIN_MAX,
    ExecExit,
    ExecResult,
    ExecStarted,
    Process,
    ProcessList,
    RunCommand,
    Runnable,
    SendSignal,
    StartProcess,
    StdinWritten,
    WriteStdin,
)
from sandboxer.work.exec import End, Run, Started
from sandboxer.work.lines import Wanted
from sandboxer.work.processes import Piece

_Asked = Asked[SandboxPath, RunCommandQuery, RunCommand]


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
    shown = ExecResult.model_construct(
        exit_code=result.end.exit_code,
        stdout=texts.of(result.stdout, asked.body.encoding),
        stderr=texts.of(result.stderr, asked.body.encoding),
        timed_out=result.end.timed_out,
        truncated=result.end.truncated,
        duration_ms=result.end.duration_ms,
        reason=None if result.end.reason is None else result.end.reason.value,
        encoding=asked.body.encoding,
        stdin_bytes=result.end.stdin_bytes,
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
                    yield ServerEvent("exit", _exit_event(item))


def _exit_event(end: End) -> ExecExit:
    return ExecExit.model_construct(
        exit_code=end.exit_code,
        timed_out=end.timed_out,
        truncated=end.truncated,
        duration_ms=end.duration_ms,
        reason=None if end.reason is None else end.reason.value,
        stdin_bytes=end.stdin_bytes,
    )


async def start(asked: Asked[SandboxPath, NoParameters, StartProcess]) -> Response:
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


async def list_processes(asked: Asked[SandboxPath, NoParameters, None]) -> ProcessList:
    infos = await asked.platform.work.processes.list(asked.path.sandbox_id, asked.caller)
    return ProcessList.model_construct(processes=[answers.process(info) for info in infos])


async def get(asked: Asked[ProcessPath, NoParameters, None]) -> Process:
    info = await asked.platform.work.processes.get(asked.path.sandbox_id, asked.caller, asked.path.process_id)
    return answers.process(info)


async def attach(asked: Asked[ProcessPath, AttachProcessQuery, None]) -> Response:
    seen_out, _, seen_err = (asked.query.last_event_id or asked.query.after or "0.0").partition(".")
    source = asked.platform.work.processes.output(
        asked.path.sandbox_id,
        asked.caller,
        asked.path.process_id,
        stdout_from=int(seen_out),
        stderr_from=int(seen_err),
    )
    await asked.platform.work.processes.get(asked.path.sandbox_id, asked.caller, asked.path.process_id)
    outputs = OutputEvents(asked.query.encoding, stdout_at=int(seen_out), stderr_at=int(seen_err))
    return EventStream(_events(source, outputs), begin_at_once=True)


async def write_stdin(asked: Asked[ProcessPath, NoParameters, WriteStdin]) -> StdinWritten:
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


async def close_stdin(asked: Asked[ProcessPath, NoParameters, None]) -> Response:
    async with until_client_goes(asked.request.receive):
        await asked.platform.work.processes.write_stdin(
            asked.path.sandbox_id, asked.caller, asked.path.process_id, b"", close=True
        )
    return nothing()


async def signal(asked: Asked[ProcessPath, NoParameters, SendSignal]) -> Response:
    await asked.platform.work.processes.signal(
        asked.path.sandbox_id, asked.caller, asked.path.process_id, asked.body.signal, tree=asked.body.tree
    )
    return nothing()


async def wait(asked: Asked[ProcessPath, WaitProcessQuery, None]) -> Process:
    async with until_client_goes(asked.request.receive):
        info = await asked.platform.work.processes.wait(
            asked.path.sandbox_id, asked.caller, asked.path.process_id, timeout_s=asked.query.timeout_s
        )
    return answers.process(info)


async def end(asked: Asked[ProcessPath, NoParameters, None]) -> Response:
    await asked.platform.work.processes.end(asked.path.sandbox_id, asked.caller, asked.path.process_id)
    return nothing()


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


def _exit(ended: Exit) -> ExecExit:
    return ExecExit.model_construct(
        exit_code=ended.code,
        timed_out=ended.reason is EndReason.TIMED_OUT,
        truncated=False,
        duration_ms=None,
        reason=None if ended.reason is None else ended.reason.value,
    )


BINDINGS: tuple[Binding, ...] = (
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
)
