"""Commands, buffered or streamed. The hottest route: one model in, one model out, no second validation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.responses import Response

from sandboxer.backends.guest import Output
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.disconnect import until_client_goes
from sandboxer.edges.http.large import LargeAnswer
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.sse import EVENT_STREAM, EventStream, ServerEvent
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
from sandboxer.wire.operations import exec as operations
from sandboxer.wire.operations.exec import RunCommandQuery
from sandboxer.wire.operations.paths import SandboxPath
from sandboxer.work.commands import Wanted
from sandboxer.work.exec import End, Run, Started


async def run_command(asked: Asked[SandboxPath, RunCommandQuery, RunCommand]) -> Response:
    runs = asked.platform.work.exec
    if asked.query.is_streamed or EVENT_STREAM in asked.request.headers.get("accept", ""):
        source = runs.stream(
            asked.path.sandbox_id, asked.caller, _run(asked.body, asked.body.output_limit_bytes)
        )
        return EventStream(_events(source, asked.body.encoding, asked.platform.metrics))
    limit = OUTPUT_LIMIT_DEFAULT if asked.body.output_limit_bytes is None else asked.body.output_limit_bytes
    async with until_client_goes(asked.request.receive):
        result = await runs.run(asked.path.sandbox_id, asked.caller, _run(asked.body, limit), asked.lease)
    _count(asked.platform.metrics, result.end)
    is_large = len(result.stdout) + len(result.stderr) > SMALL
    shown = ExecResult.model_construct(
        exit_code=result.end.exit_code,
        stdout="" if is_large else in_words(result.stdout, asked.body.encoding),
        stderr="" if is_large else in_words(result.stderr, asked.body.encoding),
        timed_out=result.end.timed_out,
        truncated=result.end.truncated,
        duration_ms=result.end.duration_ms,
        reason=None if result.end.reason is None else result.end.reason.value,
        encoding=asked.body.encoding,
        stdin_bytes=result.end.stdin_bytes,
    )
    if is_large:
        large = {"stdout": result.stdout, "stderr": result.stderr}
        return LargeAnswer(shown, large, asked.body.encoding)
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


BINDINGS: tuple[Binding, ...] = (bind(operations.RUN_COMMAND, run_command),)
