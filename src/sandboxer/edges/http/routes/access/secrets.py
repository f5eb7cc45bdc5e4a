"""Routes of an account's secrets, and of those injected into a sandbox. No answer contains a value."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from sandboxer.access.secrets.injected import FOLDER, Injected
from sandboxer.access.secrets.use_cases import Injection, Wiped
from sandboxer.access.secrets.vault import SecretInfo
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matcher import Binding
from sandboxer.wire import secrets as wire
from sandboxer.wire.operations import secrets as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import InjectedSecretPath, SandboxPath, SecretPath
from sandboxer.wire.secrets import (
    InjectSecrets,
    PutSecret,
    Secret,
    SecretList,
)


async def list_all(asked: Asked[NoParameters, NoParameters, None]) -> SecretList:
    found = await asked.platform.access.secrets.vault.list(asked.caller)
    return wire.SecretList(secrets=[_secret(one) for one in found])


async def get(asked: Asked[SecretPath, NoParameters, None]) -> Secret:
    return _secret(await asked.platform.access.secrets.vault.get(asked.path.name, asked.caller))


async def put(asked: Asked[SecretPath, NoParameters, PutSecret]) -> Secret:
    vault = asked.platform.access.secrets.vault
    return _secret(await vault.put(asked.path.name, asked.body.value.get_secret_value(), asked.caller))


async def remove(asked: Asked[SecretPath, NoParameters, None]) -> Response:
    await asked.platform.access.secrets.vault.remove(asked.path.name, asked.caller)
    return nothing()


async def inject(asked: Asked[SandboxPath, NoParameters, InjectSecrets]) -> Response:
    wanted = Injection(
        names=list(dict.fromkeys(asked.body.names)),
        values={name: value.get_secret_value() for name, value in asked.body.values.items()},
        as_env=asked.body.env,
        as_files=asked.body.files,
    )
    secrets = asked.platform.access.secrets
    return _injected(await secrets.inject(asked.path.sandbox_id, asked.caller, wanted))


async def list_injected(asked: Asked[SandboxPath, NoParameters, None]) -> Response:
    return _injected(await asked.platform.access.secrets.list(asked.path.sandbox_id, asked.caller))


async def wipe_all(asked: Asked[SandboxPath, NoParameters, None]) -> Response:
    return _wiped(await asked.platform.access.secrets.wipe(asked.path.sandbox_id, asked.caller))


async def wipe(asked: Asked[InjectedSecretPath, NoParameters, None]) -> Response:
    return _wiped(
        await asked.platform.access.secrets.wipe(asked.path.sandbox_id, asked.caller, asked.path.name)
    )


def _secret(info: SecretInfo) -> wire.Secret:
    return wire.Secret(
        name=info.name,
        size_bytes=info.size_bytes,
        created_at=info.created_at,
        updated_at=info.updated_at,
    )


def _injected(found: Sequence[Injected]) -> Response:
    listed = [
        wire.InjectedSecret(
            name=one.name,
            size_bytes=one.size_bytes,
            env=one.in_env,
            file=f"{FOLDER}/{one.name}" if one.in_file else None,
            injected_at=one.injected_at,
        )
        for one in found
    ]
    return json_response(wire.InjectedSecretList(secrets=listed))


def _wiped(done: Wiped) -> Response:
    return json_response(wire.WipedSecrets(wiped=list(done.names), may_still_hold=list(done.may_still_hold)))


BINDINGS: tuple[Binding, ...] = (
    bind(operations.LIST_SECRETS, list_all),
    bind(operations.GET_SECRET, get),
    bind(operations.PUT_SECRET, put),
    bind(operations.REMOVE_SECRET, remove),
    bind(operations.INJECT_SECRETS, inject),
    bind(operations.LIST_INJECTED_SECRETS, list_injected),
    bind(operations.WIPE_SECRETS, wipe_all),
    bind(operations.WIPE_SECRET, wipe),
)
