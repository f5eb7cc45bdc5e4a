"""Secrets of the account, and those in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandboxer.sdk.calls import Call, json_body, target
from sandboxer.sdk.routes.reading import model, nothing
from sandboxer.wire import secrets as wire


def put(name: str, value: str) -> Call[wire.Secret]:
    body, headers = json_body({"value": value})
    where = target("/v1/secrets/{}", name)
    return Call(
        method="PUT", target=where, body=body, headers=headers, read=model(wire.Secret), is_repeatable=True
    )


def listed() -> Call[wire.SecretList]:
    return Call(method="GET", target="/v1/secrets", read=model(wire.SecretList))


def remove(name: str) -> Call[None]:
    return Call(method="DELETE", target=target("/v1/secrets/{}", name), read=nothing)


def inject(
    sandbox_id: str, names: Sequence[str], values: Mapping[str, str] | None, *, env: bool, files: bool
) -> Call[wire.InjectedSecretList]:
    body, headers = json_body(
        {"names": list(names), "values": dict(values or {}), "env": env, "files": files}
    )
    return Call(
        method="PUT",
        target=target("/v1/sandboxes/{}/secrets", sandbox_id),
        body=body,
        headers=headers,
        read=model(wire.InjectedSecretList),
        is_repeatable=True,
    )


def injected(sandbox_id: str) -> Call[wire.InjectedSecretList]:
    where = target("/v1/sandboxes/{}/secrets", sandbox_id)
    return Call(method="GET", target=where, read=model(wire.InjectedSecretList))


def wipe(sandbox_id: str, name: str | None) -> Call[wire.WipedSecrets]:
    where = target("/v1/sandboxes/{}/secrets", sandbox_id)
    if name is not None:
        where = target("/v1/sandboxes/{}/secrets/{}", sandbox_id, name)
    return Call(method="DELETE", target=where, read=model(wire.WipedSecrets))
