"""Sandboxes: making, finding, changing and ending them, and what happened to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sandboxer.sdk.calls import Call, json_body, new_idempotency_key, target
from sandboxer.sdk.routes.reading import model, nothing
from sandboxer.wire.sandboxes import Reachability, Sandbox, SandboxPage, Usage

Verb = Literal["recreate", "stop", "resume", "freeze", "thaw", "lock", "unlock"]
# Making a sandbox takes milliseconds; a busy host may queue it.
CREATE_TIMEOUT_S = 180.0
# Between two pieces of a stream; the server sends comments to show that it is alive.
STREAM_TIMEOUT_S = 120.0
# `volume`, `path` and `mode` of each.
VolumesIn = Sequence[Mapping[str, str]]


def volumes_in(volumes: VolumesIn | None) -> list[dict[str, str]] | None:
    return None if volumes is None else [dict(one) for one in volumes]


def create(
    wanted: Mapping[str, Any], *, wait: bool = True, idempotency_key: str | None = None
) -> Call[Sandbox]:
    """`wanted` has the fields of `CreateSandbox`; absent and None are the same."""
    body, headers = json_body({name: value for name, value in wanted.items() if value is not None})
    return Call(
        method="POST",
        target=target("/v1/sandboxes", query={"wait": None if wait else False}),
        body=body,
        headers={**headers, "idempotency-key": idempotency_key or new_idempotency_key()},
        read=model(Sandbox),
        is_repeatable=True,
        timeout_s=CREATE_TIMEOUT_S,
    )


def get(sandbox_id: str) -> Call[Sandbox]:
    return Call(method="GET", target=target("/v1/sandboxes/{}", sandbox_id), read=model(Sandbox))


def page(
    *,
    state: str | None = None,
    labels: Mapping[str, str] | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> Call[SandboxPage]:
    where = target("/v1/sandboxes", query={"state": state, "cursor": cursor, "limit": limit})
    for key, value in (labels or {}).items():
        where += ("&" if "?" in where else "?") + target("", query={"label": f"{key}={value}"})[1:]
    return Call(method="GET", target=where, read=model(SandboxPage))


def destroy(sandbox_id: str) -> Call[Sandbox]:
    """Idempotent: gone already is success."""
    return Call(
        method="DELETE",
        target=target("/v1/sandboxes/{}", sandbox_id),
        read=model(Sandbox),
        is_repeatable=True,
    )


def change(sandbox_id: str, verb: Verb) -> Call[Sandbox]:
    return Call(
        method="POST",
        target=target("/v1/sandboxes/{}/{}", sandbox_id, verb),
        read=model(Sandbox),
        timeout_s=CREATE_TIMEOUT_S,
    )


def extend_ttl(
    sandbox_id: str, duration: str, *, quote_id: str | None = None, idempotency_key: str | None = None
) -> Call[Sandbox]:
    quote = {} if quote_id is None else {"quote_id": quote_id}
    body, headers = json_body({"duration": duration, **quote})
    return Call(
        method="PATCH",
        target=target("/v1/sandboxes/{}/ttl", sandbox_id),
        body=body,
        headers={**headers, "idempotency-key": idempotency_key or new_idempotency_key()},
        read=model(Sandbox),
        is_repeatable=True,
    )


def reachability(sandbox_id: str) -> Call[Reachability]:
    where = target("/v1/sandboxes/{}/reachability", sandbox_id)
    return Call(method="GET", target=where, read=model(Reachability))


def usage(sandbox_id: str) -> Call[Usage]:
    return Call(method="GET", target=target("/v1/sandboxes/{}/usage", sandbox_id), read=model(Usage))


def events(sandbox_id: str, *, after: int, follow: bool) -> Call[None]:
    """A stream of server-sent events."""
    return Call(
        method="GET",
        target=target("/v1/sandboxes/{}/events", sandbox_id, query={"after": after, "follow": follow}),
        headers={"accept": "text/event-stream"},
        read=nothing,
        timeout_s=STREAM_TIMEOUT_S,
    )
