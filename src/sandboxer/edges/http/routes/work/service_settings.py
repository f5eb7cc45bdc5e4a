"""A service's vault and its domains."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http import serving_services as words
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.wire.operations import services as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import DomainPath, ServicePath
from sandboxer.wire.services import (
    ChangeVault,
    ClaimDomain,
    Domain,
    DomainList,
    SetVault,
    Vault,
)


async def get_vault(asked: Asked[ServicePath, NoParameters, None]) -> Vault:
    return words.vault(asked.platform.services.get(asked.path.service, asked.caller))


async def set_vault(asked: Asked[ServicePath, NoParameters, SetVault]) -> Response:
    return await _change(asked.request, asked.path.service, dict(asked.body.secrets), replacing=True)


async def change_vault(asked: Asked[ServicePath, NoParameters, ChangeVault]) -> Response:
    return await _change(asked.request, asked.path.service, dict(asked.body.secrets), replacing=False)


async def wipe_vault(asked: Asked[ServicePath, NoParameters, None]) -> Response:
    return await _change(asked.request, asked.path.service, {}, replacing=True)


async def list_domains(asked: Asked[ServicePath, NoParameters, None]) -> DomainList:
    services = asked.platform.services
    claims = services.domains.list(services.get(asked.path.service, asked.caller))
    return DomainList.model_construct(domains=[words.domain(claim) for claim in claims])


async def claim_domain(asked: Asked[ServicePath, NoParameters, ClaimDomain]) -> Domain:
    claim = await asked.platform.services.domains.claim(asked.path.service, asked.caller, asked.body.domain)
    return words.domain(claim)


async def verify_domain(asked: Asked[DomainPath, NoParameters, None]) -> Domain:
    claim = await asked.platform.services.domains.verify(asked.path.service, asked.caller, asked.path.domain)
    return words.domain(claim)


async def remove_domain(asked: Asked[DomainPath, NoParameters, None]) -> Response:
    await asked.platform.services.domains.remove(asked.path.service, asked.caller, asked.path.domain)
    return nothing()


async def _change(
    request: Request, service: str, values: dict[str, str | None], *, replacing: bool
) -> Response:
    changed = await platform_of(request).services.change_vault(
        service, caller(request), values, replacing=replacing
    )
    return json_response(words.vault(changed))


BINDINGS: tuple[Binding, ...] = (
    bind(operations.GET_SERVICE_VAULT, get_vault),
    bind(operations.SET_SERVICE_VAULT, set_vault),
    bind(operations.CHANGE_SERVICE_VAULT, change_vault),
    bind(operations.WIPE_SERVICE_VAULT, wipe_vault),
    bind(operations.LIST_SERVICE_DOMAINS, list_domains),
    bind(operations.CLAIM_SERVICE_DOMAIN, claim_domain),
    bind(operations.VERIFY_SERVICE_DOMAIN, verify_domain),
    bind(operations.REMOVE_SERVICE_DOMAIN, remove_domain),
)
