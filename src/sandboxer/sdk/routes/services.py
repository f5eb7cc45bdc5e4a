"""Services: kept running, put to sleep, replaced without a lost request."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from sandboxer.sdk.calls import Call, json_body, new_idempotency_key, target
from sandboxer.sdk.routes.reading import model, nothing, parse
from sandboxer.sdk.routes.sandboxes import STREAM_TIMEOUT_S
from sandboxer.sdk.sse import ServerEvent
from sandboxer.wire import services as wire

Verb = Literal["freeze", "thaw", "stop", "start", "lock", "unlock"]
# Path inside (below /workspace unless absolute) to content, or to a local file.
FilesIn = Mapping[str, bytes | str | Path]
# As long as a new process may take to get well, and some.
WAIT_S = 960.0
_ONE = "/v1/services/{}"


def create(wanted: Mapping[str, Any], *, wait: bool, idempotency_key: str | None) -> Call[wire.Service]:
    body, headers = json_body({name: value for name, value in wanted.items() if value is not None})
    return Call(
        method="POST",
        target=target("/v1/services", query=None if wait else {"wait": False}),
        body=body,
        headers={**headers, "idempotency-key": idempotency_key or new_idempotency_key()},
        read=model(wire.Service),
        is_repeatable=True,
        timeout_s=WAIT_S,
    )


def page(*, state: str | None, cursor: str | None, limit: int | None) -> Call[wire.ServicePage]:
    where = target("/v1/services", query={"state": state, "cursor": cursor, "limit": limit})
    return Call(method="GET", target=where, read=model(wire.ServicePage))


def get(service: str) -> Call[wire.Service]:
    return Call(method="GET", target=target(_ONE, service), read=model(wire.Service))


def change(service: str, changes: Mapping[str, Any]) -> Call[wire.Service]:
    body, headers = json_body({name: value for name, value in changes.items() if value is not None})
    return Call(
        method="PATCH",
        target=target(_ONE, service),
        body=body,
        headers=headers,
        read=model(wire.Service),
        timeout_s=WAIT_S,
    )


def redeploy(service: str, wanted: Mapping[str, Any], *, wait: bool) -> Call[wire.Service]:
    body, headers = json_body({name: value for name, value in wanted.items() if value is not None})
    return Call(
        method="POST",
        target=target(f"{_ONE}/redeploy", service, query=None if wait else {"wait": False}),
        body=body,
        headers=headers,
        read=model(wire.Service),
        timeout_s=WAIT_S,
    )


def act(service: str, verb: Verb) -> Call[wire.Service]:
    where = target(f"{_ONE}/{verb}", service)
    return Call(method="POST", target=where, read=model(wire.Service), is_repeatable=True, timeout_s=WAIT_S)


def remove(service: str) -> Call[wire.Service]:
    return Call(method="DELETE", target=target(_ONE, service), read=model(wire.Service))


def logs(service: str, *, tail: int, after: int | None) -> Call[wire.LogPage]:
    where = target(f"{_ONE}/logs", service, query={"tail": tail, "after": after})
    return Call(method="GET", target=where, read=model(wire.LogPage))


def follow(service: str, *, tail: int, after: int | None) -> Call[None]:
    where = target(f"{_ONE}/logs", service, query={"tail": tail, "after": after, "follow": True})
    return Call(method="GET", target=where, read=nothing, timeout_s=STREAM_TIMEOUT_S)


def line(event: ServerEvent) -> wire.LogLine:
    return parse(wire.LogLine, event.data)


def vault(service: str) -> Call[wire.Vault]:
    return Call(method="GET", target=target(f"{_ONE}/env", service), read=model(wire.Vault))


def change_vault(service: str, secrets: Mapping[str, str | None], *, replacing: bool) -> Call[wire.Vault]:
    body, headers = json_body({"secrets": dict(secrets)})
    method = "PUT" if replacing else "PATCH"
    where = target(f"{_ONE}/env", service)
    return Call(method=method, target=where, body=body, headers=headers, read=model(wire.Vault))


def domains(service: str) -> Call[wire.DomainList]:
    return Call(method="GET", target=target(f"{_ONE}/domains", service), read=model(wire.DomainList))


def claim_domain(service: str, domain: str) -> Call[wire.Domain]:
    body, headers = json_body({"domain": domain})
    where = target(f"{_ONE}/domains", service)
    return Call(method="POST", target=where, body=body, headers=headers, read=model(wire.Domain))


def verify_domain(service: str, domain: str) -> Call[wire.Domain]:
    where = target(f"{_ONE}/domains/{{}}/verify", service, domain)
    return Call(method="POST", target=where, read=model(wire.Domain))


def remove_domain(service: str, domain: str) -> Call[None]:
    where = target(f"{_ONE}/domains/{{}}", service, domain)
    return Call(method="DELETE", target=where, read=nothing)


def files_in(files: FilesIn | None) -> Sequence[Mapping[str, object]] | None:
    if files is None:
        return None
    return [_file(path, content) for path, content in files.items()]


def _file(path: str, content: bytes | str | Path) -> Mapping[str, object]:
    if isinstance(content, str):
        return {"path": path, "content": content}
    mode = None
    if isinstance(content, Path):
        mode = content.stat().st_mode & 0o777
        content = content.read_bytes()
    kept: dict[str, object] = {
        "path": path,
        "content": base64.b64encode(content).decode(),
        "encoding": "base64",
    }
    return kept if mode is None else {**kept, "mode": mode}
