"""Commands and background processes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sandboxer.sdk.calls import Call, json_body, new_idempotency_key, target
from sandboxer.sdk.errors import BrokenAnswer, api_error
from sandboxer.sdk.routes.reading import model, nothing, parse
from sandboxer.sdk.routes.sandboxes import STREAM_TIMEOUT_S
from sandboxer.sdk.sse import ServerEvent
from sandboxer.wire.exec import TIMEOUT_DEFAULT_S, ExecExit, ExecOutput, ExecResult, ExecStarted
from sandboxer.wire.problems import Problem
from sandboxer.wire.processes import Process, ProcessList, StdinWritten

# What the network and the platform may add to the command's own time.
MARGIN_S = 30.0
# A process that does not read its stdin holds us up, as a pipe would.
STDIN_PATIENCE_S = 3600.0
EVENT_STREAM = {"accept": "text/event-stream"}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of output, exactly as the command wrote it."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    # Bytes lost just before this piece, because nobody read them in time.
    dropped: int = 0


Piece = ExecStarted | Chunk | ExecExit
# Text for a shell, or the words of one program.
What = str | Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where and as whom a command runs."""

    cwd: str | None = None
    env: Mapping[str, str] | None = None
    user: str | None = None
    timeout_s: float | None = None

    def fields(self, what: What) -> dict[str, object]:
        named: dict[str, object] = {"command": what} if isinstance(what, str) else {"argv": list(what)}
        named |= {"cwd": self.cwd, "user": self.user, "timeout_s": self.timeout_s}
        named |= {"env": dict(self.env) if self.env else None}
        return {name: value for name, value in named.items() if value is not None}


def execute(
    sandbox_id: str,
    what: What,
    settings: Settings,
    *,
    stdin: str | bytes | None = None,
    output_limit_bytes: int | None = None,
) -> Call[ExecResult]:
    fields = settings.fields(what) | _stdin(stdin)
    if output_limit_bytes is not None:
        fields["output_limit_bytes"] = output_limit_bytes
    body, headers = json_body(fields)
    return Call(
        method="POST",
        target=target("/v1/sandboxes/{}/exec", sandbox_id),
        body=body,
        headers=headers,
        read=model(ExecResult),
        timeout_s=(settings.timeout_s or TIMEOUT_DEFAULT_S) + MARGIN_S,
    )


def stream(
    sandbox_id: str, what: What, settings: Settings, *, stdin: str | bytes | None = None
) -> Call[None]:
    """The same as a stream of server-sent events; read its events with `piece`."""
    fields = settings.fields(what) | _stdin(stdin) | {"encoding": "base64"}
    body, headers = json_body(fields)
    return Call(
        method="POST",
        target=target("/v1/sandboxes/{}/exec", sandbox_id),
        body=body,
        headers={**headers, **EVENT_STREAM},
        read=nothing,
        timeout_s=STREAM_TIMEOUT_S,
    )


def piece(event: ServerEvent) -> Piece | None:
    """What an event of a command's stream says; raises the problem of a broken stream."""
    if event.name in ("stdout", "stderr"):
        output = parse(ExecOutput, event.data)
        name: Literal["stdout", "stderr"] = "stdout" if event.name == "stdout" else "stderr"
        return Chunk(name, _bytes(output.data), output.dropped)
    if event.name == "started":
        return parse(ExecStarted, event.data)
    if event.name == "exit":
        return parse(ExecExit, event.data)
    if event.name == "error":
        problem = parse(Problem, event.data)
        raise api_error(problem.status, problem.model_dump(), problem.request_id)
    return None


def start(sandbox_id: str, what: What, settings: Settings, *, has_stdin: bool, tag: str) -> Call[Process]:
    fields = (
        settings.fields(what) | ({"has_stdin": True} if has_stdin else {}) | ({"tag": tag} if tag else {})
    )
    body, headers = json_body(fields)
    return Call(
        method="POST",
        target=target("/v1/sandboxes/{}/processes", sandbox_id),
        body=body,
        headers={**headers, "idempotency-key": new_idempotency_key()},
        read=model(Process),
        is_repeatable=True,
    )


def processes(sandbox_id: str) -> Call[ProcessList]:
    where = target("/v1/sandboxes/{}/processes", sandbox_id)
    return Call(method="GET", target=where, read=model(ProcessList))


def process(sandbox_id: str, process_id: str) -> Call[Process]:
    where = target("/v1/sandboxes/{}/processes/{}", sandbox_id, process_id)
    return Call(method="GET", target=where, read=model(Process))


def output(sandbox_id: str, process_id: str, *, after: str | None = None) -> Call[None]:
    return Call(
        method="GET",
        target=target(
            "/v1/sandboxes/{}/processes/{}/output",
            sandbox_id,
            process_id,
            query={"after": after, "encoding": "base64"},
        ),
        headers=EVENT_STREAM,
        read=nothing,
        timeout_s=STREAM_TIMEOUT_S,
    )


def write_stdin(
    sandbox_id: str, process_id: str, data: bytes, *, close: bool, offset: int | None = None
) -> Call[StdinWritten]:
    fields: dict[str, object] = {
        "data": base64.b64encode(data).decode(),
        "encoding": "base64",
        "close": close,
    }
    if offset is not None:
        fields["offset"] = offset
    body, headers = json_body(fields)
    return Call(
        method="POST",
        target=target("/v1/sandboxes/{}/processes/{}/stdin", sandbox_id, process_id),
        body=body,
        headers=headers,
        read=model(StdinWritten),
        # What was taken already is not taken twice where its place is known.
        is_repeatable=offset is not None,
        timeout_s=STDIN_PATIENCE_S,
    )


def close_stdin(sandbox_id: str, process_id: str) -> Call[None]:
    where = target("/v1/sandboxes/{}/processes/{}/stdin", sandbox_id, process_id)
    return Call(method="DELETE", target=where, read=nothing, timeout_s=STDIN_PATIENCE_S)


def signal(sandbox_id: str, process_id: str, name: str, *, tree: bool) -> Call[None]:
    body, headers = json_body({"signal": name, "tree": tree})
    where = target("/v1/sandboxes/{}/processes/{}/signal", sandbox_id, process_id)
    return Call(method="POST", target=where, body=body, headers=headers, read=nothing)


def wait(sandbox_id: str, process_id: str, timeout_s: float) -> Call[Process]:
    return Call(
        method="GET",
        target=target(
            "/v1/sandboxes/{}/processes/{}/wait", sandbox_id, process_id, query={"timeout_s": timeout_s}
        ),
        read=model(Process),
        timeout_s=timeout_s + MARGIN_S,
    )


def end(sandbox_id: str, process_id: str) -> Call[None]:
    """Kill everything it started, and forget it."""
    where = target("/v1/sandboxes/{}/processes/{}", sandbox_id, process_id)
    return Call(method="DELETE", target=where, read=nothing)


def _stdin(stdin: str | bytes | None) -> dict[str, object]:
    if stdin is None:
        return {}
    if isinstance(stdin, str):
        return {"stdin": stdin}
    return {"stdin": base64.b64encode(stdin).decode(), "stdin_encoding": "base64"}


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise BrokenAnswer("A piece of output is not base 64.") from None
