# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on ssh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxer.sdk.call import NOTHING, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.ssh import SshGateway, SshKey, SshKeyList


def get_ssh_gateway() -> Call[SshGateway]:
    """Show the SSH gateway: ssh sbx_…@host -p port."""
    return Call(
        operation="getSshGateway",
        method="GET",
        target="/v1/ssh",
        answer="sandboxer.wire.ssh:SshGateway",
    )


def add_ssh_key(
    *,
    public_key: str,
    name: str | None = None,
    sandbox_id: str | None = None,
    ttl: str | None = None,
    idempotency_key: str | None = None,
) -> Call[SshKey]:
    """Let a public key open one sandbox, or all of the account's."""
    return Call(
        operation="addSshKey",
        method="POST",
        target="/v1/ssh-keys",
        answer="sandboxer.wire.ssh:SshKey",
        body=json_body({"public_key": public_key}, name=name, sandbox_id=sandbox_id, ttl=ttl),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
    )


def list_ssh_keys() -> Call[SshKeyList]:
    """List SSH keys, newest first."""
    return Call(
        operation="listSshKeys",
        method="GET",
        target="/v1/ssh-keys",
        answer="sandboxer.wire.ssh:SshKeyList",
    )


def revoke_ssh_key(key_id: str) -> Call[None]:
    """Revoke an SSH key; its connections end within a second."""
    return Call(
        operation="revokeSshKey",
        method="DELETE",
        target=target_of("/v1/ssh-keys/{}", key_id),
        answer=NOTHING,
    )
