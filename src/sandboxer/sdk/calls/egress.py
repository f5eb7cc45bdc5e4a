# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on egress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandboxer.sdk.call import Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.egress import AccountEgress, Egress, EgressDenialList, EgressExplained


def get_egress(sandbox_id: str) -> Call[Egress]:
    """Show the network rules of a sandbox, and what went through."""
    return Call(
        operation="getEgress",
        method="GET",
        target=target_of("/v1/sandboxes/{}/egress", sandbox_id),
        answer="sandboxer.wire.egress:Egress",
    )


def replace_egress(
    sandbox_id: str,
    *,
    default: str | None = None,
    rules: Sequence[Mapping[str, Any]] | None = None,
    secrets: Sequence[Mapping[str, Any]] | None = None,
    limits: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Call[Egress]:
    """Replace the network rules; connections that the new ones do not allow end."""
    return Call(
        operation="replaceEgress",
        method="PUT",
        target=target_of("/v1/sandboxes/{}/egress", sandbox_id),
        answer="sandboxer.wire.egress:Egress",
        body=json_body({}, default=default, rules=rules, secrets=secrets, limits=limits, version=version),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def change_egress(
    sandbox_id: str,
    *,
    default: str | None = None,
    add: Sequence[Mapping[str, Any]] | None = None,
    remove: Sequence[Mapping[str, Any]] | None = None,
    secrets: Sequence[Mapping[str, Any]] | None = None,
    limits: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Call[Egress]:
    """Add and remove network rules; connections that are not allowed any more end."""
    return Call(
        operation="changeEgress",
        method="PATCH",
        target=target_of("/v1/sandboxes/{}/egress", sandbox_id),
        answer="sandboxer.wire.egress:Egress",
        body=json_body(
            {}, default=default, add=add, remove=remove, secrets=secrets, limits=limits, version=version
        ),
        headers=headers_of(content_type="application/json"),
    )


def explain_egress(sandbox_id: str, *, url: str, method: str | None = None) -> Call[EgressExplained]:
    """Say whether a URL would be allowed, and by which rule; nothing is sent there."""
    return Call(
        operation="explainEgress",
        method="POST",
        target=target_of("/v1/sandboxes/{}/egress/explain", sandbox_id),
        answer="sandboxer.wire.egress:EgressExplained",
        body=json_body({"url": url}, method=method),
        headers=headers_of(content_type="application/json"),
    )


def list_egress_denials(sandbox_id: str) -> Call[EgressDenialList]:
    """List what a sandbox was refused lately; repetitions are one entry."""
    return Call(
        operation="listEgressDenials",
        method="GET",
        target=target_of("/v1/sandboxes/{}/egress/denials", sandbox_id),
        answer="sandboxer.wire.egress:EgressDenialList",
    )


def get_account_egress() -> Call[AccountEgress]:
    """Show the network rules of all sandboxes of the account."""
    return Call(
        operation="getAccountEgress",
        method="GET",
        target="/v1/egress",
        answer="sandboxer.wire.egress:AccountEgress",
    )


def replace_account_egress(
    *, rules: Sequence[Mapping[str, Any]], version: int | None = None
) -> Call[AccountEgress]:
    """Replace the network rules of all sandboxes of the account."""
    return Call(
        operation="replaceAccountEgress",
        method="PUT",
        target="/v1/egress",
        answer="sandboxer.wire.egress:AccountEgress",
        body=json_body({"rules": rules}, version=version),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def change_account_egress(
    *,
    add: Sequence[Mapping[str, Any]] | None = None,
    remove: Sequence[Mapping[str, Any]] | None = None,
    version: int | None = None,
) -> Call[AccountEgress]:
    """Add and remove network rules of all sandboxes of the account."""
    return Call(
        operation="changeAccountEgress",
        method="PATCH",
        target="/v1/egress",
        answer="sandboxer.wire.egress:AccountEgress",
        body=json_body({}, add=add, remove=remove, version=version),
        headers=headers_of(content_type="application/json"),
    )


def explain_account_egress(*, url: str, method: str | None = None) -> Call[EgressExplained]:
    """Say what the account's rules alone say of a URL; nothing is sent there."""
    return Call(
        operation="explainAccountEgress",
        method="POST",
        target="/v1/egress/explain",
        answer="sandboxer.wire.egress:EgressExplained",
        body=json_body({"url": url}, method=method),
        headers=headers_of(content_type="application/json"),
    )
