"""Background processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.responses import Response

from sandboxer.backends.guest import EndReason, Exit
from sandboxer.edges.http import answers
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.disconnect import until_client_goes
from sandboxer.edges.http.idempotency import once
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.routes.exec import bytes_of, wanted
from sandboxer.edges.http.sse import EventStream, ServerEvent
from sandboxer.edges.http.streams import OutputEvents
from sandboxer.wire.exec import ExecExit
from sandboxer.wire.operations import processes as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import ProcessPath, SandboxPath
from sandboxer.wire.operations.processes import AttachProcessQuery, WaitProcessQuery
from sandboxer.wire.processes import (
    Process,
    ProcessList,
    SendSignal,
    StartProcess,
    StdinWritten,
    WriteStdin,
)
from sandboxer.work.processes import Piece


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
    data = bytes_of(asked.body.data, asked.body.encoding, field="data")
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
