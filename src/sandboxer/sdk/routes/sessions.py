"""Sessions and their cells."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from sandboxer.sdk.calls import Call, json_body, new_idempotency_key, target
from sandboxer.sdk.errors import api_error
from sandboxer.sdk.routes.reading import model, nothing, parse
from sandboxer.sdk.routes.running import EVENT_STREAM, MARGIN_S, Chunk
from sandboxer.sdk.routes.sandboxes import CREATE_TIMEOUT_S, STREAM_TIMEOUT_S, VolumesIn, volumes_in
from sandboxer.sdk.sse import ServerEvent
from sandboxer.wire.problems import Problem
from sandboxer.wire.sandboxes import Sandbox
from sandboxer.wire.sessions import (
    CELL_TIMEOUT_DEFAULT_S,
    Cell,
    CellEnd,
    CellList,
    CellOutput,
    CellResult,
    Interrupted,
    Session,
    SessionPage,
)

Verb = Literal["restart", "freeze", "thaw", "unboost", "lock", "unlock"]


class StartOptions(TypedDict, total=False):
    """Where it runs, and for how long; what is not given is as the language and the platform say."""

    # A sandbox that is there; without it one is made, and ends with the session.
    sandbox_id: str | None
    name: str | None
    profile: str | None
    image: str | None
    trust: str | None
    vcpus: int | None
    resources: Mapping[str, float] | None
    # `volume`, `path` and `mode` of each, for a sandbox of its own.
    volumes: VolumesIn | None
    env: Mapping[str, str]
    cwd: str | None
    ttl: str | None
    idle: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """Something a cell showed, by media type; pictures in base 64."""

    data: Mapping[str, str]


# A `CellEnd` comes first (it began) and last (it ended).
CellPiece = CellEnd | Chunk | Shown


def start(language: str, options: StartOptions, *, idempotency_key: str | None = None) -> Call[Session]:
    fields: dict[str, Any] = {"language": language, **options}
    fields["volumes"] = volumes_in(options.get("volumes"))
    body, headers = json_body({name: value for name, value in fields.items() if value is not None})
    return Call(
        method="POST",
        target="/v1/sessions",
        body=body,
        headers={**headers, "idempotency-key": idempotency_key or new_idempotency_key()},
        read=model(Session),
        is_repeatable=True,
        timeout_s=CREATE_TIMEOUT_S,
    )


def page(
    *, sandbox_id: str | None, state: str | None, cursor: str | None, limit: int | None
) -> Call[SessionPage]:
    query = {"sandbox_id": sandbox_id, "state": state, "cursor": cursor, "limit": limit}
    return Call(method="GET", target=target("/v1/sessions", query=query), read=model(SessionPage))


def get(session_id: str) -> Call[Session]:
    return Call(method="GET", target=target("/v1/sessions/{}", session_id), read=model(Session))


def end(session_id: str) -> Call[Session]:
    """Idempotent: ended already is success."""
    return Call(
        method="DELETE",
        target=target("/v1/sessions/{}", session_id),
        read=model(Session),
        is_repeatable=True,
    )


def run(session_id: str, code: str, *, timeout_s: float | None, wait: bool = True) -> Call[Cell]:
    body, headers = json_body(_cell(code, timeout_s) | {"wait": wait})
    return Call(
        method="POST",
        target=target("/v1/sessions/{}/cells", session_id),
        body=body,
        headers=headers,
        read=model(Cell),
        # Those before it come first; nobody knows how long they take.
        timeout_s=STREAM_TIMEOUT_S if wait else (timeout_s or CELL_TIMEOUT_DEFAULT_S) + MARGIN_S,
    )


def stream(session_id: str, code: str, *, timeout_s: float | None) -> Call[None]:
    """The same as a stream of server-sent events; read its events with `piece`."""
    body, headers = json_body(_cell(code, timeout_s) | {"encoding": "base64"})
    return Call(
        method="POST",
        target=target("/v1/sessions/{}/cells", session_id),
        body=body,
        headers={**headers, **EVENT_STREAM},
        read=nothing,
        timeout_s=STREAM_TIMEOUT_S,
    )


def follow(session_id: str, n: int) -> Call[None]:
    return Call(
        method="GET",
        target=target("/v1/sessions/{}/cells/{}", session_id, str(n), query={"encoding": "base64"}),
        headers=EVENT_STREAM,
        read=nothing,
        timeout_s=STREAM_TIMEOUT_S,
    )


def cell(session_id: str, n: int, *, wait_s: float = 0.0) -> Call[Cell]:
    return Call(
        method="GET",
        target=target("/v1/sessions/{}/cells/{}", session_id, str(n), query={"wait_s": wait_s or None}),
        read=model(Cell),
        timeout_s=wait_s + MARGIN_S,
    )


def cells(session_id: str) -> Call[CellList]:
    return Call(method="GET", target=target("/v1/sessions/{}/cells", session_id), read=model(CellList))


def interrupt(session_id: str) -> Call[Interrupted]:
    where = target("/v1/sessions/{}/interrupt", session_id)
    return Call(method="POST", target=where, read=model(Interrupted))


def change(session_id: str, verb: Verb) -> Call[Session]:
    where = target("/v1/sessions/{}/{}", session_id, verb)
    return Call(method="POST", target=where, read=model(Session), timeout_s=CREATE_TIMEOUT_S)


def boost(session_id: str, vcpus: int) -> Call[Session]:
    body, headers = json_body({"vcpus": vcpus})
    where = target("/v1/sessions/{}/boost", session_id)
    return Call(method="POST", target=where, body=body, headers=headers, read=model(Session))


def boost_sandbox(sandbox_id: str, vcpus: int) -> Call[Sandbox]:
    body, headers = json_body({"vcpus": vcpus})
    where = target("/v1/sandboxes/{}/boost", sandbox_id)
    return Call(method="POST", target=where, body=body, headers=headers, read=model(Sandbox))


def unboost_sandbox(sandbox_id: str) -> Call[Sandbox]:
    where = target("/v1/sandboxes/{}/unboost", sandbox_id)
    return Call(method="POST", target=where, read=model(Sandbox))


def piece(event: ServerEvent) -> CellPiece | None:
    """What an event says; raises the problem of a broken stream."""
    if event.name in ("stdout", "stderr"):
        name: Literal["stdout", "stderr"] = "stdout" if event.name == "stdout" else "stderr"
        return Chunk(name, base64.b64decode(parse(CellOutput, event.data).data))
    if event.name == "result":
        return Shown(parse(CellResult, event.data).data)
    if event.name in ("cell", "done"):
        return parse(CellEnd, event.data)
    if event.name == "error":
        problem = parse(Problem, event.data)
        raise api_error(problem.status, problem.model_dump(), problem.request_id)
    return None


def _cell(code: str, timeout_s: float | None) -> dict[str, object]:
    return {"code": code} if timeout_s is None else {"code": code, "timeout_s": timeout_s}
