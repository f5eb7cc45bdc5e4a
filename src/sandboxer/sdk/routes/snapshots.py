"""Snapshots: kept disks, what became of them, and sandboxes made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sandboxer.sdk.calls import Call, json_body, new_idempotency_key, target
from sandboxer.sdk.routes.reading import model
from sandboxer.sdk.routes.sandboxes import CREATE_TIMEOUT_S
from sandboxer.wire import snapshots as wire
from sandboxer.wire.sandboxes import Sandbox

Verb = Literal["lock", "unlock"]


def take(
    sandbox_id: str, *, name: str | None, ttl: str | None, labels: Mapping[str, str] | None
) -> Call[wire.Snapshot]:
    body, headers = json_body(_given({"name": name, "ttl": ttl, "labels": labels}))
    return Call(
        method="POST",
        target=target("/v1/sandboxes/{}/snapshots", sandbox_id),
        body=body,
        headers={**headers, "idempotency-key": new_idempotency_key()},
        read=model(wire.Snapshot),
        is_repeatable=True,
        timeout_s=CREATE_TIMEOUT_S,
    )


def page(
    *,
    sandbox_id: str | None,
    state: str | None,
    labels: Mapping[str, str] | None,
    cursor: str | None,
    limit: int | None,
) -> Call[wire.SnapshotPage]:
    query = {"sandbox_id": sandbox_id, "state": state, "cursor": cursor, "limit": limit}
    where = target("/v1/snapshots", query=query)
    for key, value in (labels or {}).items():
        where += ("&" if "?" in where else "?") + target("", query={"label": f"{key}={value}"})[1:]
    return Call(method="GET", target=where, read=model(wire.SnapshotPage))


def tree() -> Call[wire.SnapshotTree]:
    return Call(method="GET", target="/v1/snapshots/tree", read=model(wire.SnapshotTree))


def get(snapshot_id: str) -> Call[wire.Snapshot]:
    return Call(method="GET", target=target("/v1/snapshots/{}", snapshot_id), read=model(wire.Snapshot))


def change(
    snapshot_id: str, *, name: str | None, labels: Mapping[str, str] | None, ttl: str | None
) -> Call[wire.Snapshot]:
    body, headers = json_body(_given({"name": name, "labels": labels, "ttl": ttl}))
    where = target("/v1/snapshots/{}", snapshot_id)
    return Call(method="PATCH", target=where, body=body, headers=headers, read=model(wire.Snapshot))


def remove(snapshot_id: str) -> Call[wire.Snapshot]:
    """Idempotent: gone already is success."""
    return Call(
        method="DELETE",
        target=target("/v1/snapshots/{}", snapshot_id),
        read=model(wire.Snapshot),
        is_repeatable=True,
    )


def restore(snapshot_id: str) -> Call[Sandbox]:
    return Call(
        method="POST",
        target=target("/v1/snapshots/{}/restore", snapshot_id),
        read=model(Sandbox),
        timeout_s=CREATE_TIMEOUT_S,
    )


def clone(snapshot_id: str, wanted: Mapping[str, Any]) -> Call[wire.Clones]:
    body, headers = json_body(_given(wanted))
    return Call(
        method="POST",
        target=target("/v1/snapshots/{}/clone", snapshot_id),
        body=body,
        headers={**headers, "idempotency-key": new_idempotency_key()},
        read=model(wire.Clones),
        is_repeatable=True,
        timeout_s=CREATE_TIMEOUT_S,
    )


def guard(snapshot_id: str, verb: Verb) -> Call[wire.Snapshot]:
    return Call(
        method="POST", target=target("/v1/snapshots/{}/{}", snapshot_id, verb), read=model(wire.Snapshot)
    )


def _given(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in wanted.items()
        if value is not None
    }
