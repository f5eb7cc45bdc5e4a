# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sandboxer.sdk.call import NOTHING, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.secrets import InjectedSecretList, Secret, SecretList, WipedSecrets


def list_secrets() -> Call[SecretList]:
    """List the names of the account's secrets."""
    return Call(
        operation="listSecrets",
        method="GET",
        target="/v1/secrets",
        answer="sandboxer.wire.secrets:SecretList",
    )


def get_secret(name: str) -> Call[Secret]:
    """Show a secret: its size and age, never its value."""
    return Call(
        operation="getSecret",
        method="GET",
        target=target_of("/v1/secrets/{}", name),
        answer="sandboxer.wire.secrets:Secret",
    )


def put_secret(name: str, *, value: str) -> Call[Secret]:
    """Keep a secret, encrypted; it replaces one of the same name."""
    return Call(
        operation="putSecret",
        method="PUT",
        target=target_of("/v1/secrets/{}", name),
        answer="sandboxer.wire.secrets:Secret",
        body=json_body({"value": value}),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def remove_secret(name: str) -> Call[None]:
    """Delete a secret; sandboxes that have it keep it until it is wiped there."""
    return Call(
        operation="removeSecret",
        method="DELETE",
        target=target_of("/v1/secrets/{}", name),
        answer=NOTHING,
    )


def inject_secrets(
    sandbox_id: str,
    *,
    names: Sequence[str] | None = None,
    values: Mapping[str, str] | None = None,
    env: bool | None = None,
    files: bool | None = None,
) -> Call[InjectedSecretList]:
    """Give a sandbox secrets, without restarting anything."""
    return Call(
        operation="injectSecrets",
        method="PUT",
        target=target_of("/v1/sandboxes/{}/secrets", sandbox_id),
        answer="sandboxer.wire.secrets:InjectedSecretList",
        body=json_body({}, names=names, values=values, env=env, files=files),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def list_injected_secrets(sandbox_id: str) -> Call[InjectedSecretList]:
    """List the names of a sandbox's injected secrets."""
    return Call(
        operation="listInjectedSecrets",
        method="GET",
        target=target_of("/v1/sandboxes/{}/secrets", sandbox_id),
        answer="sandboxer.wire.secrets:InjectedSecretList",
    )


def wipe_secrets(sandbox_id: str) -> Call[WipedSecrets]:
    """Wipe all secrets from a sandbox: their files are removed, new commands do not get them."""
    return Call(
        operation="wipeSecrets",
        method="DELETE",
        target=target_of("/v1/sandboxes/{}/secrets", sandbox_id),
        answer="sandboxer.wire.secrets:WipedSecrets",
    )


def wipe_secret(sandbox_id: str, name: str) -> Call[WipedSecrets]:
    """Wipe one secret from a sandbox."""
    return Call(
        operation="wipeSecret",
        method="DELETE",
        target=target_of("/v1/sandboxes/{}/secrets/{}", sandbox_id, name),
        answer="sandboxer.wire.secrets:WipedSecrets",
    )
