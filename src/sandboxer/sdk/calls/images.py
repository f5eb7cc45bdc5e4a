# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.bodies import Body
from sandboxer.sdk.call import BYTES, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.images import ImageGrants, PublishedImage
    from sandboxer.wire.snapshots import Clones


def export_image(image_id: str, *, format: str | None = None) -> Call[bytes]:
    """Download an image as one tar: an OCI layout, or what `docker load` and `podman load` read."""
    return Call(
        operation="exportImage",
        method="GET",
        target=target_of("/v1/images/{}/export", image_id, format=format),
        answer=BYTES,
        timeout_s=900.0,
    )


def import_image(
    body: Body,
    *,
    name: str,
    description: str | None = None,
    visibility: str | None = None,
    clean: bool | None = None,
    profile: str | None = None,
    idempotency_key: str | None = None,
) -> Call[PublishedImage]:
    """Publish an OCI layout or a Docker archive (`docker save`, `podman save`), sent as one tar."""
    return Call(
        operation="importImage",
        method="POST",
        target=target_of(
            "/v1/images/import",
            name=name,
            description=description,
            visibility=visibility,
            clean=clean,
            profile=profile,
        ),
        answer="sandboxer.wire.images:PublishedImage",
        body=body,
        headers=headers_of(content_type="application/x-tar", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=5400.0,
    )


def build_image(
    body: Body,
    *,
    name: str,
    description: str | None = None,
    visibility: str | None = None,
    clean: bool | None = None,
    profile: str | None = None,
    file: str | None = None,
    target: str | None = None,
    arg: Sequence[str] | None = None,
    start: str | None = None,
    ready: str | None = None,
    cache: bool | None = None,
) -> Call[PublishedImage]:
    """Build a Dockerfile and publish what comes of it; its context is sent as one tar."""
    return Call(
        operation="buildImage",
        method="POST",
        target=target_of(
            "/v1/images/build",
            name=name,
            description=description,
            visibility=visibility,
            clean=clean,
            profile=profile,
            file=file,
            target=target,
            arg=arg,
            start=start,
            ready=ready,
            cache=cache,
        ),
        answer="sandboxer.wire.images:PublishedImage",
        body=body,
        headers=headers_of(content_type="application/x-tar"),
        timeout_s=5400.0,
    )


def pull_image(
    *,
    reference: str,
    name: str | None = None,
    description: str | None = None,
    visibility: str | None = None,
    clean: bool | None = None,
    profile: str | None = None,
    user: Mapping[str, Any] | None = None,
    plain_http: bool | None = None,
) -> Call[PublishedImage]:
    """Fetch an image from a registry and publish it; one that is there already is not fetched again."""
    return Call(
        operation="pullImage",
        method="POST",
        target="/v1/images/pull",
        answer="sandboxer.wire.images:PublishedImage",
        body=json_body(
            {"reference": reference},
            name=name,
            description=description,
            visibility=visibility,
            clean=clean,
            profile=profile,
            user=user,
            plain_http=plain_http,
        ),
        headers=headers_of(content_type="application/json"),
        timeout_s=5400.0,
    )


def publish_image(
    *,
    name: str,
    snapshot: str | None = None,
    sandbox: str | None = None,
    service: str | None = None,
    description: str | None = None,
    visibility: str | None = None,
    clean: bool | None = None,
    idempotency_key: str | None = None,
) -> Call[PublishedImage]:
    """Publish a snapshot, or a sandbox's or a service's disk as it is now."""
    return Call(
        operation="publishImage",
        method="POST",
        target="/v1/images",
        answer="sandboxer.wire.images:PublishedImage",
        body=json_body(
            {"name": name},
            snapshot=snapshot,
            sandbox=sandbox,
            service=service,
            description=description,
            visibility=visibility,
            clean=clean,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=900.0,
    )


def get_image(image_id: str) -> Call[PublishedImage]:
    """Show a published image."""
    return Call(
        operation="getImage",
        method="GET",
        target=target_of("/v1/images/{}", image_id),
        answer="sandboxer.wire.images:PublishedImage",
    )


def remove_image(image_id: str) -> Call[PublishedImage]:
    """Delete an image; deleted already is success, what was made from it stays."""
    return Call(
        operation="removeImage",
        method="DELETE",
        target=target_of("/v1/images/{}", image_id),
        answer="sandboxer.wire.images:PublishedImage",
        is_repeatable=True,
    )


def verify_image(image_id: str) -> Call[PublishedImage]:
    """Check an image's files against its digest; one that was altered is refused from then on."""
    return Call(
        operation="verifyImage",
        method="POST",
        target=target_of("/v1/images/{}/verify", image_id),
        answer="sandboxer.wire.images:PublishedImage",
        is_repeatable=True,
        timeout_s=900.0,
    )


def clone_image(
    image_id: str,
    *,
    name: str | None = None,
    description: str | None = None,
    visibility: str | None = None,
    idempotency_key: str | None = None,
) -> Call[PublishedImage]:
    """Copy an image into your own account; the copy outlives the original."""
    return Call(
        operation="cloneImage",
        method="POST",
        target=target_of("/v1/images/{}/clone", image_id),
        answer="sandboxer.wire.images:PublishedImage",
        body=json_body({}, name=name, description=description, visibility=visibility),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=900.0,
    )


def spawn_image(
    image_id: str,
    *,
    count: int | None = None,
    name: str | None = None,
    profile: str | None = None,
    trust: str | None = None,
    network: str | None = None,
    ttl: str | None = None,
    idle_timeout: str | None = None,
    resources: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    volumes: Sequence[Mapping[str, Any]] | None = None,
    idempotency_key: str | None = None,
) -> Call[Clones]:
    """Create sandboxes from an image."""
    return Call(
        operation="spawnImage",
        method="POST",
        target=target_of("/v1/images/{}/spawn", image_id),
        answer="sandboxer.wire.snapshots:Clones",
        body=json_body(
            {},
            count=count,
            name=name,
            profile=profile,
            trust=trust,
            network=network,
            ttl=ttl,
            idle_timeout=idle_timeout,
            resources=resources,
            env=env,
            labels=labels,
            volumes=volumes,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
        timeout_s=900.0,
    )


def change_image(
    image_id: str, *, name: str | None = None, description: str | None = None, visibility: str | None = None
) -> Call[PublishedImage]:
    """Change an image's name, description or visibility; private while a file in it looks like a secret."""
    return Call(
        operation="changeImage",
        method="PATCH",
        target=target_of("/v1/images/{}", image_id),
        answer="sandboxer.wire.images:PublishedImage",
        body=json_body({}, name=name, description=description, visibility=visibility),
        headers=headers_of(content_type="application/json"),
    )


def list_image_grants(image_id: str) -> Call[ImageGrants]:
    """List the accounts that may use an image beside its owner."""
    return Call(
        operation="listImageGrants",
        method="GET",
        target=target_of("/v1/images/{}/grants", image_id),
        answer="sandboxer.wire.images:ImageGrants",
    )


def grant_image(image_id: str, *, account: str) -> Call[ImageGrants]:
    """Let an account use an image."""
    return Call(
        operation="grantImage",
        method="POST",
        target=target_of("/v1/images/{}/grants", image_id),
        answer="sandboxer.wire.images:ImageGrants",
        body=json_body({"account": account}),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def revoke_image(image_id: str, account: str) -> Call[ImageGrants]:
    """Let an account use an image no more; what was made from it stays."""
    return Call(
        operation="revokeImage",
        method="DELETE",
        target=target_of("/v1/images/{}/grants/{}", image_id, account),
        answer="sandboxer.wire.images:ImageGrants",
        is_repeatable=True,
    )


def transfer_image(image_id: str, *, account: str | None) -> Call[PublishedImage]:
    """Offer an image to another account, which accepts it and pays for it from then on."""
    return Call(
        operation="transferImage",
        method="POST",
        target=target_of("/v1/images/{}/transfer", image_id),
        answer="sandboxer.wire.images:PublishedImage",
        body=json_body({"account": account}),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def accept_image(image_id: str) -> Call[PublishedImage]:
    """Accept an image that was offered to you."""
    return Call(
        operation="acceptImage",
        method="POST",
        target=target_of("/v1/images/{}/accept", image_id),
        answer="sandboxer.wire.images:PublishedImage",
        is_repeatable=True,
        timeout_s=900.0,
    )


def lock_image(image_id: str) -> Call[PublishedImage]:
    """Lock an image: deleting and unlocking it then need a second proof."""
    return Call(
        operation="lockImage",
        method="POST",
        target=target_of("/v1/images/{}/lock", image_id),
        answer="sandboxer.wire.images:PublishedImage",
        is_repeatable=True,
        timeout_s=900.0,
    )


def unlock_image(image_id: str) -> Call[PublishedImage]:
    """Unlock an image."""
    return Call(
        operation="unlockImage",
        method="POST",
        target=target_of("/v1/images/{}/unlock", image_id),
        answer="sandboxer.wire.images:PublishedImage",
        is_repeatable=True,
        timeout_s=900.0,
    )
