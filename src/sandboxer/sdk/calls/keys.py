# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import NOTHING, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.keys import (
        ClientRequest,
        DelegatedKey,
        KeyList,
        KeyNode,
        KeyReport,
        NewBearer,
        NewDelegatedKey,
        NewKey,
    )


def validate_key(*, public_key: str) -> Call[KeyReport]:
    """Say whether a key is valid, with which tier and limits."""
    return Call(
        operation="validateKey",
        method="POST",
        target="/v1/keys/validate",
        answer="sandboxer.wire.keys:KeyReport",
        body=json_body({"public_key": public_key}),
        headers=headers_of(content_type="application/json"),
    )


def reveal_key(public_key: str, *, claim: str, regenerate: bool | None = None) -> Call[NewKey]:
    """Fetch the secret of a key that was paid for: once, within 15 minutes."""
    return Call(
        operation="revealKey",
        method="POST",
        target=target_of("/v1/keys/{}/reveal", public_key),
        answer="sandboxer.wire.keys:NewKey",
        body=json_body({"claim": claim}, regenerate=regenerate),
        headers=headers_of(content_type="application/json"),
    )


def regenerate_key(public_key: str) -> Call[NewKey]:
    """Give a key a new secret; the old one ends at once."""
    return Call(
        operation="regenerateKey",
        method="POST",
        target=target_of("/v1/keys/{}/regenerate", public_key),
        answer="sandboxer.wire.keys:NewKey",
    )


def issue_bearer(public_key: str) -> Call[NewBearer]:
    """Make a bearer token for a key; an older one ends at once."""
    return Call(
        operation="issueBearer",
        method="POST",
        target=target_of("/v1/keys/{}/bearer", public_key),
        answer="sandboxer.wire.keys:NewBearer",
    )


def end_bearer(public_key: str) -> Call[None]:
    """End the bearer token of a key; the key itself goes on."""
    return Call(
        operation="endBearer",
        method="DELETE",
        target=target_of("/v1/keys/{}/bearer", public_key),
        answer=NOTHING,
    )


def suspend_key(public_key: str, *, why: str) -> Call[None]:
    """Suspend a key (owner)."""
    return Call(
        operation="suspendKey",
        method="POST",
        target=target_of("/v1/keys/{}/suspend", public_key),
        answer=NOTHING,
        body=json_body({"why": why}),
        headers=headers_of(content_type="application/json"),
    )


def unsuspend_key(public_key: str) -> Call[None]:
    """Let a suspended key sign again (owner)."""
    return Call(
        operation="unsuspendKey",
        method="POST",
        target=target_of("/v1/keys/{}/unsuspend", public_key),
        answer=NOTHING,
    )


def set_key_expiry(public_key: str, *, expires_at: str | None = None) -> Call[None]:
    """Say when a key ends by itself (owner)."""
    return Call(
        operation="setKeyExpiry",
        method="PUT",
        target=target_of("/v1/keys/{}/expiry", public_key),
        answer=NOTHING,
        body=json_body({}, expires_at=expires_at),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def cut_key(
    *,
    name: str,
    scopes: Sequence[str],
    budget_sats: int | None = None,
    depth: int | None = None,
    slots: int | None = None,
    expires_at: str | None = None,
    caps: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
) -> Call[NewDelegatedKey]:
    """Delegate a key: a child with a budget, scopes, depth, slots and an end within yours."""
    return Call(
        operation="cutKey",
        method="POST",
        target="/v1/keys/delegated",
        answer="sandboxer.wire.keys:NewDelegatedKey",
        body=json_body(
            {"name": name, "scopes": scopes},
            budget_sats=budget_sats,
            depth=depth,
            slots=slots,
            expires_at=expires_at,
            caps=caps,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
    )


def show_client_request(code: str) -> Call[ClientRequest]:
    """Show which program asks to act for you, by the code in your browser."""
    return Call(
        operation="showClientRequest",
        method="GET",
        target=target_of("/v1/keys/requests/{}", code),
        answer="sandboxer.wire.keys:ClientRequest",
    )


def allow_client(
    code: str,
    *,
    name: str | None = None,
    budget_sats: int | None = None,
    scopes: Sequence[str] | None = None,
    slots: int | None = None,
    expires_at: str | None = None,
) -> Call[ClientRequest]:
    """Let a program act for this account that asked in a browser: it gets a delegated key of its own."""
    return Call(
        operation="allowClient",
        method="POST",
        target=target_of("/v1/keys/requests/{}/allow", code),
        answer="sandboxer.wire.keys:ClientRequest",
        body=json_body(
            {}, name=name, budget_sats=budget_sats, scopes=scopes, slots=slots, expires_at=expires_at
        ),
        headers=headers_of(content_type="application/json"),
    )


def refuse_client(code: str) -> Call[None]:
    """Refuse a program that asked in a browser to act for this account."""
    return Call(
        operation="refuseClient",
        method="DELETE",
        target=target_of("/v1/keys/requests/{}", code),
        answer=NOTHING,
    )


def top_up_key(public_key: str, *, sats: int, id: str) -> Call[DelegatedKey]:
    """Give a delegated key more sats; the same id gives once."""
    return Call(
        operation="topUpKey",
        method="POST",
        target=target_of("/v1/keys/{}/top-up", public_key),
        answer="sandboxer.wire.keys:DelegatedKey",
        body=json_body({"sats": sats, "id": id}),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def create_key(
    *,
    name: str,
    account: str | None = None,
    accepts_v1: bool | None = None,
    idempotency_key: str | None = None,
) -> Call[NewKey]:
    """Create a key; its secret is shown this once."""
    return Call(
        operation="createKey",
        method="POST",
        target="/v1/keys",
        answer="sandboxer.wire.keys:NewKey",
        body=json_body({"name": name}, account=account, accepts_v1=accepts_v1),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
    )


def list_keys() -> Call[KeyList]:
    """List the keys of this account; for the owner, all."""
    return Call(
        operation="listKeys",
        method="GET",
        target="/v1/keys",
        answer="sandboxer.wire.keys:KeyList",
    )


def show_key_tree() -> Call[KeyNode]:
    """Show every key below this account, and what each has spent."""
    return Call(
        operation="showKeyTree",
        method="GET",
        target="/v1/keys/tree",
        answer="sandboxer.wire.keys:KeyNode",
    )


def revoke_key(public_key: str) -> Call[None]:
    """Revoke a key and all that was delegated from it; revoked already is success."""
    return Call(
        operation="revokeKey",
        method="DELETE",
        target=target_of("/v1/keys/{}", public_key),
        answer=NOTHING,
    )
