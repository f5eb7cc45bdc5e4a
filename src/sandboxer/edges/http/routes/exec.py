"""Commands, buffered or streamed. The hottest route: one model in, one model out, no second validation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.backends.guest import Output
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.disconnect import until_client_goes
from sandboxer.edges.http.failures import inside, stream
from sandboxer.edges.http.large import LargeAnswer
from sandboxer.edges.http.lean import LeanRoute
from sandboxer.edges.http.sse import EVENT_STREAM, EventStream, ServerEvent
from sandboxer.edges.http.state import caller, lease_of, platform_of
from sandboxer.edges.http.streams import OutputEvents, in_bytes, in_words
from sandboxer.kernel.budget import SMALL
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.observe.metrics import Metrics
from sandboxer.wire.exec import (
    OUTPUT_LIMIT_DEFAULT,
    STDIN_MAX,
    ExecExit,
    ExecResult,
    ExecStarted,
    RunCommand,
    Runnable,
)
from sandboxer.wire.words import SandboxId
from sandboxer.work.commands import Wanted
from sandboxer.work.exec import End, Run, Started

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}", tags=["exec"], route_class=LeanRoute)
_STREAMED = stream("How it ended; or, streamed: `started`, `stdout` and `stderr`, then `exit` or `error`.")


@router.post(
    "/exec",
    operation_id="runCommand",
    response_model=ExecResult,
    responses={**inside(403), 200: _STREAMED},
    summary="Run a command to its end",
)
async def run_command(
    request: Request,
    sandbox_id: SandboxId,
    body: RunCommand,
    is_streamed: Annotated[
        bool,
        Query(alias="stream", description="Server-sent events, as `Accept: text/event-stream` asks for."),
    ] = False,
) -> Response:
    runs = platform_of(request).work.exec
    if is_streamed or EVENT_STREAM in request.headers.get("accept", ""):
        source = runs.stream(sandbox_id, caller(request), _run(body, body.output_limit_bytes))
        return EventStream(_events(source, body.encoding, platform_of(request).metrics))
    limit = OUTPUT_LIMIT_DEFAULT if body.output_limit_bytes is None else body.output_limit_bytes
    async with until_client_goes(request.receive):
        result = await runs.run(sandbox_id, caller(request), _run(body, limit), lease_of(request.scope))
    _count(platform_of(request).metrics, result.end)
    is_large = len(result.stdout) + len(result.stderr) > SMALL
    shown = ExecResult.model_construct(
        exit_code=result.end.exit_code,
        stdout="" if is_large else in_words(result.stdout, body.encoding),
        stderr="" if is_large else in_words(result.stderr, body.encoding),
        timed_out=result.end.timed_out,
        truncated=result.end.truncated,
        duration_ms=result.end.duration_ms,
        reason=None if result.end.reason is None else result.end.reason.value,
        encoding=body.encoding,
        stdin_bytes=result.end.stdin_bytes,
    )
    if is_large:
        large = {"stdout": result.stdout, "stderr": result.stderr}
        return LargeAnswer(shown, large, body.encoding)
    return json_response(shown)


def wanted(body: Runnable) -> Wanted:
    return Wanted(shell=body.command, argv=body.argv, cwd=body.cwd, env=body.env, user=body.user)


def bytes_of(text: str, encoding: str, *, field: str) -> bytes:
    try:
        data = in_bytes(text, encoding)
    except ValueError:
        raise InvalidRequest(field=field, why="it is not base 64") from None
    if len(data) > STDIN_MAX:
        raise InvalidRequest(field=field, why=f"it is larger than {STDIN_MAX} bytes")
    return data


def _run(body: RunCommand, limit: int | None) -> Run:
    stdin = None if body.stdin is None else bytes_of(body.stdin, body.stdin_encoding, field="stdin")
    return Run(wanted=wanted(body), timeout_s=body.timeout_s, stdin=stdin, output_limit=limit)


def _count(metrics: Metrics, end: End) -> None:
    outcome = "timed_out" if end.timed_out else "failed" if end.exit_code else "ok"
    metrics.exec_seconds.labels(outcome).observe(end.duration_ms / 1000)


async def _events(
    source: AsyncIterator[Started | Output | End], encoding: str, metrics: Metrics
) -> AsyncIterator[ServerEvent]:
    outputs = OutputEvents(encoding)
    async with aclosing(source) as items:  # type: ignore[type-var]
        async for item in items:
            match item:
                case Started():
                    shown = ExecStarted.model_construct(process_id=item.process_id, pid=item.pid)
                    yield ServerEvent("started", shown)
                case Output():
                    if event := outputs.piece(item):
                        yield event
                case End():
                    _count(metrics, item)
                    for event in outputs.rest():
                        yield event
                    yield ServerEvent("exit", _exit(item))


def _exit(end: End) -> ExecExit:
    return ExecExit.model_construct(
        exit_code=end.exit_code,
        timed_out=end.timed_out,
        truncated=end.truncated,
        duration_ms=end.duration_ms,
        reason=None if end.reason is None else end.reason.value,
        stdin_bytes=end.stdin_bytes,
    )
