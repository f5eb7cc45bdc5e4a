"""Published images: made, shared, started from, sent out and taken in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sandboxer.sdk.bodies import Body
from sandboxer.sdk.calls import Call, json_body, new_idempotency_key, target
from sandboxer.sdk.routes.reading import content, model
from sandboxer.wire import images as wire
from sandboxer.wire.catalogue import ImageList
from sandboxer.wire.snapshots import Clones

# Every file is read.
SLOW_S = 900.0
# Read, unpacked, and read again, with as many as two million files.
IMPORT_S = 5400.0
Verb = Literal["verify", "accept", "lock", "unlock"]
Form = Literal["oci", "docker"]


def publish(wanted: Mapping[str, Any]) -> Call[wire.PublishedImage]:
    return _make("/v1/images", wanted)


def clone(image_id: str, wanted: Mapping[str, Any]) -> Call[wire.PublishedImage]:
    return _make(target("/v1/images/{}/clone", image_id), wanted)


def page(*, which: str | None, cursor: str | None, limit: int | None) -> Call[ImageList]:
    query = {"filter": which, "cursor": cursor, "limit": limit}
    return Call(method="GET", target=target("/v1/images", query=query), read=model(ImageList))


def get(image_id: str) -> Call[wire.PublishedImage]:
    where = target("/v1/images/{}", image_id)
    return Call(method="GET", target=where, read=model(wire.PublishedImage))


def change(image_id: str, wanted: Mapping[str, Any]) -> Call[wire.PublishedImage]:
    body, headers = json_body(_given(wanted))
    where = target("/v1/images/{}", image_id)
    return Call(method="PATCH", target=where, body=body, headers=headers, read=model(wire.PublishedImage))


def remove(image_id: str) -> Call[wire.PublishedImage]:
    """Idempotent: gone already is success."""
    where = target("/v1/images/{}", image_id)
    return Call(method="DELETE", target=where, read=model(wire.PublishedImage), is_repeatable=True)


def do(image_id: str, verb: Verb) -> Call[wire.PublishedImage]:
    where = target("/v1/images/{}/{}", image_id, verb)
    return Call(
        method="POST", target=where, read=model(wire.PublishedImage), is_repeatable=True, timeout_s=SLOW_S
    )


def grants(image_id: str) -> Call[wire.ImageGrants]:
    where = target("/v1/images/{}/grants", image_id)
    return Call(method="GET", target=where, read=model(wire.ImageGrants))


def grant(image_id: str, account: str) -> Call[wire.ImageGrants]:
    body, headers = json_body({"account": account})
    where = target("/v1/images/{}/grants", image_id)
    return Call(
        method="POST",
        target=where,
        body=body,
        headers=headers,
        read=model(wire.ImageGrants),
        is_repeatable=True,
    )


def revoke(image_id: str, account: str) -> Call[wire.ImageGrants]:
    where = target("/v1/images/{}/grants/{}", image_id, account)
    return Call(method="DELETE", target=where, read=model(wire.ImageGrants), is_repeatable=True)


def transfer(image_id: str, account: str | None) -> Call[wire.PublishedImage]:
    body, headers = json_body({"account": account})
    return Call(
        method="POST",
        target=target("/v1/images/{}/transfer", image_id),
        body=body,
        headers=headers,
        read=model(wire.PublishedImage),
        is_repeatable=True,
    )


def spawn(image_id: str, wanted: Mapping[str, Any]) -> Call[Clones]:
    body, headers = json_body(_given(wanted))
    return Call(
        method="POST",
        target=target("/v1/images/{}/spawn", image_id),
        body=body,
        headers={**headers, "idempotency-key": new_idempotency_key()},
        read=model(Clones),
        is_repeatable=True,
        timeout_s=SLOW_S,
    )


def export(image_id: str, form: Form) -> Call[bytes]:
    where = target("/v1/images/{}/export", image_id, query={"format": form})
    return Call(method="GET", target=where, read=content, timeout_s=SLOW_S)


def import_archive(body: Body, wanted: Mapping[str, Any]) -> Call[wire.PublishedImage]:
    return Call(
        method="POST",
        target=target("/v1/images/import", query=wanted),
        body=body,
        headers={"content-type": "application/x-tar", "idempotency-key": new_idempotency_key()},
        read=model(wire.PublishedImage),
        is_repeatable=True,
        timeout_s=IMPORT_S,
    )


def _make(where: str, wanted: Mapping[str, Any]) -> Call[wire.PublishedImage]:
    body, headers = json_body(_given(wanted))
    return Call(
        method="POST",
        target=where,
        body=body,
        headers={**headers, "idempotency-key": new_idempotency_key()},
        read=model(wire.PublishedImage),
        is_repeatable=True,
        timeout_s=SLOW_S,
    )


def _given(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if value is not None}
