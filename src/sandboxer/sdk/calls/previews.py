# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on previews."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxer.sdk.call import NOTHING, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.previews import Exposure, KnownName, NewPreview, PreviewList


def create_preview(
    sandbox_id: str,
    *,
    port: int,
    ttl: str | None = None,
    public: bool | None = None,
    one_time: bool | None = None,
    wakes: bool | None = None,
    hold_s: int | None = None,
    inspect: str | None = None,
    idempotency_key: str | None = None,
) -> Call[NewPreview]:
    """Make a link that opens a port inside a sandbox; its token is shown once."""
    return Call(
        operation="createPreview",
        method="POST",
        target=target_of("/v1/sandboxes/{}/previews", sandbox_id),
        answer="sandboxer.wire.previews:NewPreview",
        body=json_body(
            {"port": port},
            ttl=ttl,
            public=public,
            one_time=one_time,
            wakes=wakes,
            hold_s=hold_s,
            inspect=inspect,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
    )


def get_exposure(sandbox_id: str) -> Call[Exposure]:
    """Look for secrets and git folders that a program in a sandbox might show to whoever reaches it."""
    return Call(
        operation="getExposure",
        method="GET",
        target=target_of("/v1/sandboxes/{}/exposure", sandbox_id),
        answer="sandboxer.wire.previews:Exposure",
    )


def list_previews(sandbox_id: str) -> Call[PreviewList]:
    """List the open previews of a sandbox, newest first."""
    return Call(
        operation="listPreviews",
        method="GET",
        target=target_of("/v1/sandboxes/{}/previews", sandbox_id),
        answer="sandboxer.wire.previews:PreviewList",
    )


def revoke_preview(sandbox_id: str, preview_id: str) -> Call[None]:
    """Close a preview: its link and its cookies stop working."""
    return Call(
        operation="revokePreview",
        method="DELETE",
        target=target_of("/v1/sandboxes/{}/previews/{}", sandbox_id, preview_id),
        answer=NOTHING,
    )


def ask_for_name(*, domain: str) -> Call[KnownName]:
    """Say whether a host name is served here (for the TLS proxy)."""
    return Call(
        operation="askForName",
        method="GET",
        target=target_of("/v1/edge/ask", domain=domain),
        answer="sandboxer.wire.previews:KnownName",
    )
