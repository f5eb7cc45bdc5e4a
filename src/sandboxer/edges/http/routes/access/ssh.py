"""Routes of keys that open sandboxes by SSH, and of where the gateway is. `edges/ssh` is the
gateway itself.
"""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from sandboxer.access.ssh import SshKey
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.idempotency import once
from sandboxer.edges.http.matcher import Binding
from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest, NotAvailable
from sandboxer.wire import ssh as wire
from sandboxer.wire.operations import ssh as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import SshKeyPath
from sandboxer.wire.ssh import AddSshKey, SshGateway, SshKeyList

MAX_TTL = timedelta(days=3650)


async def gateway(asked: Asked[NoParameters, NoParameters, None]) -> SshGateway:
    found = asked.platform.access.ssh.gateway
    if found is None:
        raise NotAvailable(what="ssh", why="this platform has no SSH gateway (ssh_listen)")
    return wire.SshGateway(
        host=found.host, port=found.port, host_key=found.host_key, fingerprint=found.fingerprint
    )


async def add(asked: Asked[NoParameters, NoParameters, AddSshKey]) -> Response:
    keys, who = asked.platform.access.ssh.keys, asked.caller
    ttl = None if asked.body.ttl is None else parse_duration(asked.body.ttl, field="ttl")
    if ttl is not None and ttl > MAX_TTL:
        raise InvalidRequest(field="ttl", why=f"an SSH key lasts at most {MAX_TTL.days}d")

    async def act() -> Response:
        made = await keys.add(
            who,
            public_key=asked.body.public_key,
            name=asked.body.name,
            sandbox_id=asked.body.sandbox_id,
            ttl=ttl,
        )
        return json_response(_key(made), 201)

    return await once(asked.request, act)


async def list_all(asked: Asked[NoParameters, NoParameters, None]) -> SshKeyList:
    found = await asked.platform.access.ssh.keys.list(asked.caller)
    return wire.SshKeyList(ssh_keys=[_key(one) for one in found])


async def revoke(asked: Asked[SshKeyPath, NoParameters, None]) -> Response:
    await asked.platform.access.ssh.keys.revoke(asked.path.key_id, asked.caller)
    return nothing()


def _key(key: SshKey) -> wire.SshKey:
    return wire.SshKey(
        id=key.id,
        name=key.name,
        algorithm=key.algorithm,
        public_key=key.public_key,
        fingerprint=key.fingerprint,
        sandbox_id=key.sandbox_id,
        created_at=key.created_at,
        expires_at=key.expires_at,
    )


BINDINGS: tuple[Binding, ...] = (
    bind(operations.GET_SSH_GATEWAY, gateway),
    bind(operations.ADD_SSH_KEY, add),
    bind(operations.LIST_SSH_KEYS, list_all),
    bind(operations.REVOKE_SSH_KEY, revoke),
)
