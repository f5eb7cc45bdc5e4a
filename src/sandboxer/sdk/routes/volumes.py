"""Volumes: disks that outlive sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sandboxer.sdk.calls import Call, json_body, new_idempotency_key, target
from sandboxer.sdk.routes.reading import model
from sandboxer.sdk.routes.sandboxes import CREATE_TIMEOUT_S
from sandboxer.wire import volumes as wire
from sandboxer.wire.snapshots import Snapshot

Verb = Literal["lock", "unlock"]


def create(wanted: Mapping[str, Any]) -> Call[wire.Volume]:
    """`wanted` has the fields of `CreateVolume`; absent and None are the same."""
    body, headers = json_body(_given(wanted))
    return Call(
        method="POST",
        target="/v1/volumes",
        body=body,
        headers={**headers, "idempotency-key": new_idempotency_key()},
        read=model(wire.Volume),
        is_repeatable=True,
        timeout_s=CREATE_TIMEOUT_S,
    )


def page(*, state: str | None, cursor: str | None, limit: int | None) -> Call[wire.VolumePage]:
    query = {"state": state, "cursor": cursor, "limit": limit}
    return Call(method="GET", target=target("/v1/volumes", query=query), read=model(wire.VolumePage))


def get(volume: str) -> Call[wire.Volume]:
    return Call(method="GET", target=target("/v1/volumes/{}", volume), read=model(wire.Volume))


def change(
    volume: str, *, name: str | None, size_mb: int | None, labels: Mapping[str, str] | None
) -> Call[wire.Volume]:
    body, headers = json_body(_given({"name": name, "size_mb": size_mb, "labels": labels}))
    where = target("/v1/volumes/{}", volume)
    return Call(method="PATCH", target=where, body=body, headers=headers, read=model(wire.Volume))


def take(
    volume: str, *, name: str | None, ttl: str | None, labels: Mapping[str, str] | None
) -> Call[Snapshot]:
    body, headers = json_body(_given({"name": name, "ttl": ttl, "labels": labels}))
    return Call(
        method="POST",
        target=target("/v1/volumes/{}/snapshots", volume),
        body=body,
        headers={**headers, "idempotency-key": new_idempotency_key()},
        read=model(Snapshot),
        is_repeatable=True,
        timeout_s=CREATE_TIMEOUT_S,
    )


def restore(volume: str, snapshot: str) -> Call[wire.Volume]:
    body, headers = json_body({"snapshot": snapshot})
    return Call(
        method="POST",
        target=target("/v1/volumes/{}/restore", volume),
        body=body,
        headers=headers,
        read=model(wire.Volume),
        timeout_s=CREATE_TIMEOUT_S,
    )


def guard(volume: str, verb: Verb) -> Call[wire.Volume]:
    return Call(method="POST", target=target("/v1/volumes/{}/{}", volume, verb), read=model(wire.Volume))


def remove(volume: str) -> Call[wire.Volume]:
    """Idempotent by id: gone already is success."""
    return Call(
        method="DELETE",
        target=target("/v1/volumes/{}", volume),
        read=model(wire.Volume),
        is_repeatable=True,
        timeout_s=CREATE_TIMEOUT_S,
    )


def _given(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if value is not None}
