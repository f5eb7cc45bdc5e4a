"""Previews: addresses that open a port inside a sandbox."""

from __future__ import annotations

from sandboxer.sdk.calls import Call, json_body, target
from sandboxer.sdk.routes.reading import model, nothing
from sandboxer.wire import previews as wire


def create(sandbox_id: str, wanted: dict[str, object]) -> Call[wire.NewPreview]:
    body, headers = json_body({name: value for name, value in wanted.items() if value is not None})
    where = target("/v1/sandboxes/{}/previews", sandbox_id)
    return Call(method="POST", target=where, body=body, headers=headers, read=model(wire.NewPreview))


def listed(sandbox_id: str) -> Call[wire.PreviewList]:
    where = target("/v1/sandboxes/{}/previews", sandbox_id)
    return Call(method="GET", target=where, read=model(wire.PreviewList))


def revoke(sandbox_id: str, preview_id: str) -> Call[None]:
    where = target("/v1/sandboxes/{}/previews/{}", sandbox_id, preview_id)
    return Call(method="DELETE", target=where, read=nothing)
