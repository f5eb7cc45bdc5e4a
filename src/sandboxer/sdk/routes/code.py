"""Code run once, and jobs."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from sandboxer.sdk.calls import Call, json_body, new_idempotency_key, target
from sandboxer.sdk.errors import api_error
from sandboxer.sdk.routes.reading import model, nothing, parse
from sandboxer.sdk.routes.running import EVENT_STREAM, MARGIN_S, Chunk
from sandboxer.sdk.routes.sandboxes import STREAM_TIMEOUT_S, VolumesIn, volumes_in
from sandboxer.sdk.sse import ServerEvent
from sandboxer.wire.execute import TTL_DEFAULT_S, Execution, ExecutionBegan, ExecutionOutput
from sandboxer.wire.jobs import Job, JobPage, JobSummary
from sandboxer.wire.problems import Problem

# The server answers within its own limit, or with what there is.
WAIT_MAX_S = 60.0


class Options(TypedDict, total=False):
    """How to run it; what is not given is as the language and the platform say."""

    argv: Sequence[str]
    stdin: str | bytes | None
    # By name, relative to the working folder.
    files: Mapping[str, str | bytes]
    env: Mapping[str, str]
    trust: str | None
    ttl_s: int | None
    vcpus: float | None
    memory_mb: int | None
    disk_mb: int | None
    profile: str | None
    # `volume`, `path` and `mode` of each.
    volumes: VolumesIn | None
    # Names and patterns of files to bring back.
    artifacts: Sequence[str]
    output_limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class CodeChunk:
    """A piece of output, exactly as it was written, and by whom."""

    stage: Literal["compile", "run"]
    chunk: Chunk


CodePiece = ExecutionBegan | CodeChunk | Execution


def run(
    code: str, language: str | None, options: Options, *, idempotency_key: str | None = None
) -> Call[Execution]:
    body, headers = json_body(_fields(code, language, options))
    key = {} if idempotency_key is None else {"idempotency-key": idempotency_key}
    return Call(
        method="POST",
        target="/v1/execute",
        body=body,
        headers={**headers, **key},
        read=model(Execution),
        is_repeatable=idempotency_key is not None,
        timeout_s=_patience(options),
    )


def stream(code: str, language: str | None, options: Options) -> Call[None]:
    """The same as a stream of server-sent events; read its events with `piece`."""
    body, headers = json_body(_fields(code, language, options) | {"encoding": "base64"})
    return Call(
        method="POST",
        target="/v1/execute",
        body=body,
        headers={**headers, **EVENT_STREAM},
        read=nothing,
        timeout_s=STREAM_TIMEOUT_S,
    )


def piece(event: ServerEvent) -> CodePiece | None:
    """What an event says; raises the problem of a broken stream. The last one's output is base 64."""
    if event.name in ("stdout", "stderr"):
        output = parse(ExecutionOutput, event.data)
        name: Literal["stdout", "stderr"] = "stdout" if event.name == "stdout" else "stderr"
        return CodeChunk(output.stage, Chunk(name, base64.b64decode(output.data), output.dropped))
    if event.name in ("placed", "began"):
        return parse(ExecutionBegan, event.data)
    if event.name == "done":
        return parse(Execution, event.data)
    if event.name == "error":
        problem = parse(Problem, event.data)
        raise api_error(problem.status, problem.model_dump(), problem.request_id)
    return None


def submit(
    code: str,
    language: str | None,
    options: Options,
    *,
    webhook_url: str | None = None,
    idempotency_key: str | None = None,
) -> Call[JobSummary]:
    fields = _fields(code, language, options)
    if webhook_url is not None:
        fields["webhook_url"] = webhook_url
    body, headers = json_body(fields)
    return Call(
        method="POST",
        target="/v1/execute/async",
        body=body,
        headers={**headers, "idempotency-key": idempotency_key or new_idempotency_key()},
        read=model(JobSummary),
        is_repeatable=True,
    )


def jobs(*, state: str | None, cursor: str | None, limit: int | None) -> Call[JobPage]:
    where = target("/v1/jobs", query={"state": state, "cursor": cursor, "limit": limit})
    return Call(method="GET", target=where, read=model(JobPage))


def job(job_id: str, *, wait_s: float = 0.0) -> Call[Job]:
    query = {"wait_s": min(wait_s, WAIT_MAX_S) if wait_s else None}
    return Call(
        method="GET",
        target=target("/v1/jobs/{}", job_id, query=query),
        read=model(Job),
        timeout_s=wait_s + MARGIN_S if wait_s else None,
    )


def cancel(job_id: str) -> Call[Job]:
    """Idempotent: one that has ended stays as it is."""
    return Call(method="DELETE", target=target("/v1/jobs/{}", job_id), read=model(Job), is_repeatable=True)


def _patience(options: Options) -> float:
    return (options.get("ttl_s") or TTL_DEFAULT_S) + 2 * MARGIN_S


def _fields(code: str, language: str | None, options: Options) -> dict[str, Any]:
    fields: dict[str, Any] = {"code": code, "language": language, **options}
    fields["volumes"] = volumes_in(options.get("volumes"))
    if "files" in options:
        fields["files"] = [{"name": name, **_content(data)} for name, data in options["files"].items()]
    if isinstance(stdin := options.get("stdin"), bytes):
        fields |= {"stdin": base64.b64encode(stdin).decode(), "stdin_encoding": "base64"}
    for name in ("argv", "artifacts"):
        if name in fields:
            fields[name] = list(fields[name])
    return {name: value for name, value in fields.items() if value is not None}


def _content(data: str | bytes) -> dict[str, str]:
    if isinstance(data, str):
        return {"content": data}
    return {"content": base64.b64encode(data).decode(), "encoding": "base64"}
