"""SSH keys, and where the gateway is."""

from __future__ import annotations

from sandboxer.sdk.calls import Call, json_body, new_idempotency_key, target
from sandboxer.sdk.routes.reading import model, nothing
from sandboxer.wire import ssh as wire


def gateway() -> Call[wire.SshGateway]:
    return Call(method="GET", target="/v1/ssh", read=model(wire.SshGateway))


def add(wanted: dict[str, object]) -> Call[wire.SshKey]:
    body, headers = json_body({name: value for name, value in wanted.items() if value is not None})
    return Call(
        method="POST",
        target="/v1/ssh-keys",
        body=body,
        headers={**headers, "idempotency-key": new_idempotency_key()},
        read=model(wire.SshKey),
        is_repeatable=True,
    )


def listed() -> Call[wire.SshKeyList]:
    return Call(method="GET", target="/v1/ssh-keys", read=model(wire.SshKeyList))


def revoke(key_id: str) -> Call[None]:
    return Call(method="DELETE", target=target("/v1/ssh-keys/{}", key_id), read=nothing)
