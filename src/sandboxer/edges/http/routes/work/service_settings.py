"""A service's vault and its domains."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http import serving_services as words
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.lean import LeanRoute
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.wire.services import (
    ChangeVault,
    ClaimDomain,
    Domain,
    DomainList,
    DomainName,
    ServiceRef,
    SetVault,
    Vault,
)

router = APIRouter(prefix="/v1/services/{service}", tags=["services"], route_class=LeanRoute)


@router.get(
    "/env",
    operation_id="getServiceVault",
    response_model=Vault,
    responses=failures(404),
    summary="Names in its vault; values never come out",
)
async def get_vault(request: Request, service: ServiceRef) -> Response:
    return json_response(words.vault(platform_of(request).services.get(service, caller(request))))


@router.put(
    "/env",
    operation_id="setServiceVault",
    response_model=Vault,
    responses=failures(404, 409),
    summary="Replace what is in its vault; its next process has it",
)
async def set_vault(request: Request, service: ServiceRef, body: SetVault) -> Response:
    return await _change(request, service, dict(body.secrets), replacing=True)


@router.patch(
    "/env",
    operation_id="changeServiceVault",
    response_model=Vault,
    responses=failures(404, 409),
    summary="Set or take out single names of its vault",
)
async def change_vault(request: Request, service: ServiceRef, body: ChangeVault) -> Response:
    return await _change(request, service, dict(body.secrets), replacing=False)


@router.delete(
    "/env",
    operation_id="wipeServiceVault",
    response_model=Vault,
    responses=failures(404, 409),
    summary="Empty its vault",
)
async def wipe_vault(request: Request, service: ServiceRef) -> Response:
    return await _change(request, service, {}, replacing=True)


@router.get(
    "/domains",
    operation_id="listServiceDomains",
    response_model=DomainList,
    responses=failures(404),
    summary="Domains of its own, proven or not",
)
async def list_domains(request: Request, service: ServiceRef) -> Response:
    services = platform_of(request).services
    claims = services.domains.list(services.get(service, caller(request)))
    return json_response(DomainList.model_construct(domains=[words.domain(claim) for claim in claims]))


@router.post(
    "/domains",
    operation_id="claimServiceDomain",
    status_code=201,
    response_model=Domain,
    responses=failures(404, 409),
    summary="Claim a domain; says what it must serve to prove that it is yours",
)
async def claim_domain(request: Request, service: ServiceRef, body: ClaimDomain) -> Response:
    claim = await platform_of(request).services.domains.claim(service, caller(request), body.domain)
    return json_response(words.domain(claim), 201)


@router.post(
    "/domains/{domain}/verify",
    operation_id="verifyServiceDomain",
    response_model=Domain,
    responses=failures(404, 409),
    summary="Look whether the domain serves the token; from then on it leads here",
)
async def verify_domain(request: Request, service: ServiceRef, domain: DomainName) -> Response:
    claim = await platform_of(request).services.domains.verify(service, caller(request), domain)
    return json_response(words.domain(claim))


@router.delete(
    "/domains/{domain}",
    operation_id="removeServiceDomain",
    status_code=204,
    responses=failures(404),
    summary="Let a domain go",
)
async def remove_domain(request: Request, service: ServiceRef, domain: DomainName) -> Response:
    await platform_of(request).services.domains.remove(service, caller(request), domain)
    return nothing()


async def _change(
    request: Request, service: str, values: dict[str, str | None], *, replacing: bool
) -> Response:
    changed = await platform_of(request).services.change_vault(
        service, caller(request), values, replacing=replacing
    )
    return json_response(words.vault(changed))
