"""Background processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.backends.guest import EndReason, Exit
from sandboxer.edges.http import answers
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.disconnect import until_client_goes
from sandboxer.edges.http.failures import inside, stream
from sandboxer.edges.http.idempotency import IdempotencyKey, once
from sandboxer.edges.http.lean import LeanRoute
from sandboxer.edges.http.routes.exec import bytes_of, wanted
from sandboxer.edges.http.sse import EventStream, ServerEvent
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.edges.http.streams import OutputEvents
from sandboxer.wire.exec import ExecExit
from sandboxer.wire.processes import (
    Process,
    ProcessId,
    ProcessList,
    SendSignal,
    StartProcess,
    StdinWritten,
    WriteStdin,
)
from sandboxer.wire.words import Encoding, SandboxId
from sandboxer.work.processes import Piece

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/processes", tags=["processes"], route_class=LeanRoute)
MAX_WAIT_S = 3600.0
Position = Annotated[
    str | None,
    Query(
        pattern=r"^[0-9]{1,18}\.[0-9]{1,18}$",
        description="Id of the last event seen: bytes of stdout, a dot, bytes of stderr.",
        examples=["4096.0"],
    ),
]


@router.post(
    "",
    operation_id="startProcess",
    status_code=201,
    response_model=Process,
    responses=inside(403),
    summary="Start a process that runs on",
)
async def start(
    request: Request, sandbox_id: SandboxId, body: StartProcess, idempotency_key: IdempotencyKey = None
) -> Response:
    async def act() -> Response:
        info = await platform_of(request).work.processes.start(
            sandbox_id,
            caller(request),
            wanted(body),
            tag=body.tag,
            has_stdin=body.has_stdin,
            timeout_s=body.timeout_s,
        )
        return json_response(answers.process(info), 201)

    return await once(request, act)


@router.get(
    "",
    operation_id="listProcesses",
    response_model=ProcessList,
    responses=inside(),
    summary="List background processes, oldest first",
)
async def list_processes(request: Request, sandbox_id: SandboxId) -> Response:
    infos = await platform_of(request).work.processes.list(sandbox_id, caller(request))
    return json_response(ProcessList.model_construct(processes=[answers.process(info) for info in infos]))


@router.get(
    "/{process_id}",
    operation_id="getProcess",
    response_model=Process,
    responses=inside(),
    summary="Look at a process",
)
async def get(request: Request, sandbox_id: SandboxId, process_id: ProcessId) -> Response:
    info = await platform_of(request).work.processes.get(sandbox_id, caller(request), process_id)
    return json_response(answers.process(info))


@router.get(
    "/{process_id}/output",
    operation_id="attachProcess",
    status_code=200,
    response_class=EventStream,
    responses={**inside(), 200: stream("`stdout` and `stderr`, then `exit`, or `error`.")},
    summary="Its output: what is kept, then what follows",
)
async def attach(
    request: Request,
    sandbox_id: SandboxId,
    process_id: ProcessId,
    after: Position = None,
    encoding: Annotated[Encoding, Query()] = "utf-8",
    last_event_id: Annotated[
        str | None, Header(pattern=r"^[0-9]{1,18}\.[0-9]{1,18}$", description="As `after`.")
    ] = None,
) -> Response:
    seen_out, _, seen_err = (last_event_id or after or "0.0").partition(".")
    source = platform_of(request).work.processes.output(
        sandbox_id, caller(request), process_id, stdout_from=int(seen_out), stderr_from=int(seen_err)
    )
    await platform_of(request).work.processes.get(sandbox_id, caller(request), process_id)
    outputs = OutputEvents(encoding, stdout_at=int(seen_out), stderr_at=int(seen_err))
    return EventStream(_events(source, outputs), begin_at_once=True)


@router.post(
    "/{process_id}/stdin",
    operation_id="writeStdin",
    response_model=StdinWritten,
    responses=inside(),
    summary="Write to its stdin",
)
async def write_stdin(
    request: Request, sandbox_id: SandboxId, process_id: ProcessId, body: WriteStdin
) -> Response:
    data = bytes_of(body.data, body.encoding, field="data")
    async with until_client_goes(request.receive):
        await platform_of(request).work.processes.write_stdin(
            sandbox_id, caller(request), process_id, data, close=body.close, offset=body.offset
        )
    return json_response(StdinWritten(written_bytes=len(data), closed=body.close))


@router.delete(
    "/{process_id}/stdin",
    operation_id="closeStdin",
    status_code=204,
    responses=inside(),
    summary="Close its stdin",
)
async def close_stdin(request: Request, sandbox_id: SandboxId, process_id: ProcessId) -> Response:
    # It waits for whoever writes before it: not longer than somebody waits for the answer.
    async with until_client_goes(request.receive):
        await platform_of(request).work.processes.write_stdin(
            sandbox_id, caller(request), process_id, b"", close=True
        )
    return nothing()


@router.post(
    "/{process_id}/signal",
    operation_id="signalProcess",
    status_code=204,
    responses=inside(),
    summary="Send it a signal; ended already is success",
)
async def signal(
    request: Request, sandbox_id: SandboxId, process_id: ProcessId, body: SendSignal
) -> Response:
    await platform_of(request).work.processes.signal(
        sandbox_id, caller(request), process_id, body.signal, tree=body.tree
    )
    return nothing()


@router.get(
    "/{process_id}/wait",
    operation_id="waitProcess",
    response_model=Process,
    responses=inside(),
    summary="Answer when it has ended, or when the time is over",
)
async def wait(
    request: Request,
    sandbox_id: SandboxId,
    process_id: ProcessId,
    timeout_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] = 30.0,
) -> Response:
    async with until_client_goes(request.receive):
        info = await platform_of(request).work.processes.wait(
            sandbox_id, caller(request), process_id, timeout_s=timeout_s
        )
    return json_response(answers.process(info))


@router.delete(
    "/{process_id}",
    operation_id="endProcess",
    status_code=204,
    responses=inside(),
    summary="Kill everything it started, and forget it",
)
async def end(request: Request, sandbox_id: SandboxId, process_id: ProcessId) -> Response:
    await platform_of(request).work.processes.end(sandbox_id, caller(request), process_id)
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
