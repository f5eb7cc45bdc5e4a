"""Routes of ways into a sandbox: previews of its ports, secrets, and SSH keys.

`edges/proxy` serves the ports themselves, and `edges/ssh` is the SSH gateway. The TLS edge asks here whether
a name is ours before it obtains a certificate. No answer contains the value of a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.access.ports.ports import Ports, Preview, read_host, without_port
from sandboxer.access.secrets.use_cases import Injection, Wiped
from sandboxer.access.secrets.vault import FOLDER, Injected
from sandboxer.edges.http import answers
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, AskedQuery, bind
from sandboxer.edges.http.demands import holds_scope, refuse_by_socket
from sandboxer.edges.http.idempotency import once
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest, NotAvailable, or_not_found
from sandboxer.sandboxes.exposure import Inspect, look
from sandboxer.wire import previews as wire_previews
from sandboxer.wire.e2b import API_LABEL
from sandboxer.wire.operations import access as operations
from sandboxer.wire.operations.declaration import Scope
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wire.secrets import (
    InjectedSecret,
    InjectedSecretList,
    InjectSecrets,
    PutSecret,
    Secret,
    SecretList,
    WipedSecrets,
)
from sandboxer.wire.ssh import AddSshKey, SshGateway, SshKey, SshKeyList

PREVIEW_TTL = timedelta(hours=24)
MAX_PREVIEW_TTL = timedelta(days=90)
MAX_SSH_KEY_TTL = timedelta(days=3650)


async def create_preview(asked: AskedPathBody[SandboxPath, wire_previews.CreatePreview]) -> Response:
    ports = asked.platform.access.ports
    if asked.body.public and asked.body.one_time:
        raise InvalidRequest(field="one_time", why="a public preview has no link that could be used up")

    async def act() -> Response:
        made = await ports.previews.create(
            asked.path.sandbox_id,
            asked.caller,
            port=asked.body.port,
            ttl=_preview_ttl(asked.body),
            is_public=asked.body.public,
            is_one_time=asked.body.one_time,
            wakes=await _wakes(asked.request, asked.body),
            hold_s=asked.body.hold_s,
            inspect=None if asked.body.inspect is None else Inspect(asked.body.inspect),
        )
        shown = from_record(
            wire_previews.NewPreview,
            _preview(ports, made.preview, made.token),
            token=made.token,
            exposure=None if made.exposure is None else answers.exposure(made.exposure),
        )
        return json_response(shown, 201)

    return await once(asked.request, act, keep_answer=False)


async def get_exposure(asked: Asked[SandboxPath]) -> wire_previews.Exposure:
    return answers.exposure(await look(asked.platform.sandboxes, asked.path.sandbox_id, asked.caller))


async def list_previews(asked: Asked[SandboxPath]) -> wire_previews.PreviewList:
    ports = asked.platform.access.ports
    found = await ports.previews.list(asked.path.sandbox_id, asked.caller)
    return wire_previews.PreviewList(previews=[_preview(ports, one) for one in found])


async def revoke_preview(asked: Asked[operations.PreviewPath]) -> None:
    await asked.platform.access.ports.previews.revoke(
        asked.path.sandbox_id, asked.path.preview_id, asked.caller
    )


async def _wakes(request: Request, body: wire_previews.CreatePreview) -> bool:
    """Decides whether a preview wakes the sandbox if the caller does not say: yes if the caller's key may
    wake it.
    """
    return await holds_scope(request, Scope.SANDBOXES_MANAGE) if body.wakes is None else body.wakes


def _preview_ttl(body: wire_previews.CreatePreview) -> timedelta | None:
    if body.ttl is None:
        return None if body.public else PREVIEW_TTL
    if (ttl := parse_duration(body.ttl, field="ttl")) > MAX_PREVIEW_TTL:
        raise InvalidRequest(field="ttl", why=f"a preview lasts at most {MAX_PREVIEW_TTL.days}d")
    return ttl


def _preview(ports: Ports, preview: Preview, token: str | None = None) -> wire_previews.Preview:
    return from_record(
        wire_previews.Preview,
        preview,
        public=preview.is_public,
        one_time=preview.is_one_time,
        url=ports.url(preview, token),
    )


async def ask_for_name(
    asked: AskedQuery[operations.AskForNameQuery],
) -> wire_previews.KnownName:
    name, settings = without_port(asked.query.domain), asked.platform.settings
    if name in (urlsplit(settings.url).hostname, f"{API_LABEL}.{settings.proxy_domain}"):
        return wire_previews.KnownName(domain=name)
    if (address := read_host(name, settings.proxy_domain)) is None:
        known: object = await asked.platform.access.ports.by_name(name, settings.proxy_domain)
    else:
        # Also of a sandbox that is gone: who asks whether it runs hears "no" by this name.
        known = await asked.platform.sandboxes.repository.find(address.sandbox_id)
    or_not_found(known, what="name", id=name, hint="Only names of services and ports are served here.")
    return wire_previews.KnownName(domain=name)


async def list_secrets(asked: Asked) -> SecretList:
    found = await asked.platform.access.secrets.vault.list(asked.caller)
    return SecretList(secrets=[from_record(Secret, one) for one in found])


async def get_secret(asked: Asked[operations.SecretPath]) -> Secret:
    found = await asked.platform.access.secrets.vault.get(asked.path.name, asked.caller)
    return from_record(Secret, found)


async def put_secret(asked: AskedPathBody[operations.SecretPath, PutSecret]) -> Secret:
    vault, value = asked.platform.access.secrets.vault, asked.body.value.get_secret_value()
    return from_record(Secret, await vault.put(asked.path.name, value, asked.caller))


async def remove_secret(asked: Asked[operations.SecretPath]) -> None:
    await asked.platform.access.secrets.vault.remove(asked.path.name, asked.caller)


async def inject_secrets(asked: AskedPathBody[SandboxPath, InjectSecrets]) -> Response:
    wanted = Injection(
        names=list(dict.fromkeys(asked.body.names)),
        values={name: value.get_secret_value() for name, value in asked.body.values.items()},
        as_env=asked.body.env,
        as_files=asked.body.files,
    )
    secrets = asked.platform.access.secrets
    return _injected(await secrets.inject(asked.path.sandbox_id, asked.caller, wanted))


async def list_injected(asked: Asked[SandboxPath]) -> Response:
    return _injected(await asked.platform.access.secrets.list(asked.path.sandbox_id, asked.caller))


async def wipe_secrets(asked: Asked[SandboxPath]) -> Response:
    return _wiped(await asked.platform.access.secrets.wipe(asked.path.sandbox_id, asked.caller))


async def wipe_secret(asked: Asked[operations.InjectedSecretPath]) -> Response:
    return _wiped(
        await asked.platform.access.secrets.wipe(asked.path.sandbox_id, asked.caller, asked.path.name)
    )


def _injected(found: Sequence[Injected]) -> Response:
    listed = [
        from_record(InjectedSecret, one, env=one.in_env, file=f"{FOLDER}/{one.name}" if one.in_file else None)
        for one in found
    ]
    return json_response(InjectedSecretList(secrets=listed))


def _wiped(done: Wiped) -> Response:
    return json_response(WipedSecrets(wiped=list(done.names), may_still_hold=list(done.may_still_hold)))


async def ssh_gateway(asked: Asked) -> SshGateway:
    if (found := asked.platform.access.ssh.gateway) is None:
        hint = "`sandboxer shell` needs none; its operator opens one by SANDBOXER_SSH_LISTEN=127.0.0.1:2222."
        raise NotAvailable(what="ssh", why="this platform has no SSH gateway", hint=hint)
    return from_record(SshGateway, found)


async def add_ssh_key(asked: AskedBody[AddSshKey]) -> Response:
    refuse_by_socket(asked.caller)
    ttl = None if asked.body.ttl is None else parse_duration(asked.body.ttl, field="ttl")
    if ttl is not None and ttl > MAX_SSH_KEY_TTL:
        raise InvalidRequest(field="ttl", why=f"an SSH key lasts at most {MAX_SSH_KEY_TTL.days}d")

    async def act() -> Response:
        made = await asked.platform.access.ssh.keys.add(
            asked.caller,
            public_key=asked.body.public_key,
            name=asked.body.name,
            sandbox_id=asked.body.sandbox_id,
            ttl=ttl,
        )
        return json_response(from_record(SshKey, made), 201)

    return await once(asked.request, act)


async def list_ssh_keys(asked: Asked) -> SshKeyList:
    found = await asked.platform.access.ssh.keys.list(asked.caller)
    return SshKeyList(ssh_keys=[from_record(SshKey, one) for one in found])


async def revoke_ssh_key(asked: Asked[operations.SshKeyPath]) -> None:
    await asked.platform.access.ssh.keys.revoke(asked.path.key_id, asked.caller)


BINDINGS = (
    bind(operations.CREATE_PREVIEW, create_preview),
    bind(operations.GET_EXPOSURE, get_exposure),
    bind(operations.LIST_PREVIEWS, list_previews),
    bind(operations.REVOKE_PREVIEW, revoke_preview),
    bind(operations.ASK_FOR_NAME, ask_for_name),
    bind(operations.LIST_SECRETS, list_secrets),
    bind(operations.GET_SECRET, get_secret),
    bind(operations.PUT_SECRET, put_secret),
    bind(operations.REMOVE_SECRET, remove_secret),
    bind(operations.INJECT_SECRETS, inject_secrets),
    bind(operations.LIST_INJECTED_SECRETS, list_injected),
    bind(operations.WIPE_SECRETS, wipe_secrets),
    bind(operations.WIPE_SECRET, wipe_secret),
    bind(operations.GET_SSH_GATEWAY, ssh_gateway),
    bind(operations.ADD_SSH_KEY, add_ssh_key),
    bind(operations.LIST_SSH_KEYS, list_ssh_keys),
    bind(operations.REVOKE_SSH_KEY, revoke_ssh_key),
)
