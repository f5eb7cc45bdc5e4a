"""The operations on services."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    AnsweredOrEvents,
    Group,
    Idempotency,
    InHeader,
    Nothing,
    Parameters,
    Scope,
    Tool,
    WayOut,
    created,
    needs,
)
from sandboxer.wire.services import (
    LOG_TAIL_MAX,
    ChangeService,
    ChangeVault,
    ClaimDomain,
    CreateService,
    Domain,
    DomainList,
    DomainName,
    LogPage,
    RedeployService,
    Service,
    ServicePage,
    ServiceRef,
    ServiceState,
    SetVault,
    Vault,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, Cursor, PageLimit


class ServicePath(Parameters):
    service: ServiceRef


class DomainPath(ServicePath):
    domain: DomainName


class WaitQuery(Parameters):
    wait: Annotated[bool, Field(description="Answer only when it runs, or it is known why it does not.")] = (
        True
    )


class ListServicesQuery(Parameters):
    state: Annotated[ServiceState | None, Field(description="Default: all.")] = None
    cursor: Cursor | None = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


class ReadServiceLogsQuery(Parameters):
    tail: Annotated[int, Field(ge=0, le=LOG_TAIL_MAX, description="How many of the last lines.")] = 100
    follow: Annotated[bool, Field(description="Go on with what comes.")] = False
    after: Annotated[int | None, Field(ge=0, le=2**53, description="Only lines with a greater number.")] = (
        None
    )
    last_event_id: Annotated[
        str | None, Field(pattern="^[0-9]{1,15}$", description="As `after`."), InHeader("last-event-id")
    ] = None


_SERVICES = Group(noun="services", needs=needs(Scope.SANDBOXES_MANAGE), reads=needs(Scope.SANDBOXES_READ))
_SERVICE = _SERVICES.below("/v1/services/{service}", ServicePath, audited="service")
_LIFECYCLE = replace(_SERVICE, is_repeatable=True, patience_s=960.0, failures=(404, 409))
_VAULT = replace(_SERVICE, needs=needs(Scope.EXEC))
_DOMAIN = _SERVICE.below("/domains/{domain}", DomainPath)
CREATE_SERVICE = _SERVICES.operation(
    "createService",
    "POST /v1/services",
    "Create a service: a process with a name that is kept running, in a sandbox of its own",
    created(Service),
    query=WaitQuery,
    body=CreateService,
    # What it runs is the caller's code.
    needs=needs(Scope.SANDBOXES_CREATE, Scope.EXEC),
    idempotency=Idempotency.BOUND,
    patience_s=960.0,
    failures=(402, 404, 409, 502),
    way_out=WayOut(fields=("public",)),
    tools=(Tool(),),
)
LIST_SERVICES = _SERVICES.operation(
    "listServices",
    "GET /v1/services",
    "List services, newest first",
    ServicePage,
    query=ListServicesQuery,
    tools=(Tool(),),
)
GET_SERVICE = _SERVICE.operation(
    "getService",
    "GET",
    "Show a service",
    Service,
    tools=(Tool(),),
)
CHANGE_SERVICE = _SERVICE.operation(
    "changeService",
    "PATCH",
    "Change a service's settings; a change of env or port starts a new process",
    Service,
    query=WaitQuery,
    body=ChangeService,
    needs=needs(Scope.SANDBOXES_MANAGE, Scope.EXEC),
    patience_s=960.0,
    failures=(402, 409, 502),
    way_out=WayOut(fields=("public",)),
)
REMOVE_SERVICE = _SERVICE.operation(
    "removeService",
    "DELETE",
    "Delete a service with its sandbox, its disk and its log",
    Service,
    needs=needs(Scope.SANDBOXES_DESTROY),
    failures=(409, 428, 502),
    tools=(Tool("deleteService"),),
)
REDEPLOY_SERVICE = _VAULT.operation(
    "redeployService",
    "POST /redeploy",
    "Deploy a new program, files or environment; the old process goes on until the new one is healthy",
    Service,
    query=WaitQuery,
    body=RedeployService,
    patience_s=960.0,
    failures=(402, 409, 502),
    is_lossy=True,
    tools=(Tool(),),
)
FREEZE_SERVICE = _LIFECYCLE.operation(
    "freezeService",
    "POST /freeze",
    "Put a service to sleep: frozen in memory, at the frozen price",
    Service,
    failures=(502,),
    tools=(Tool(),),
)
THAW_SERVICE = _LIFECYCLE.operation(
    "thawService",
    "POST /thaw",
    "Wake a service",
    Service,
    failures=(402, 502),
    tools=(Tool("unfreezeService"),),
)
STOP_SERVICE = _LIFECYCLE.operation(
    "stopService",
    "POST /stop",
    "Stop a service: its process ends, its sandbox is stopped, its disk is kept",
    Service,
    failures=(502,),
)
START_SERVICE = _LIFECYCLE.operation(
    "startService",
    "POST /start",
    "Start a service that was stopped, has failed, or was given up",
    Service,
    query=WaitQuery,
    failures=(402, 502),
)
LOCK_SERVICE = _LIFECYCLE.operation(
    "lockService",
    "POST /lock",
    "Lock a service: deleting and unlocking it then need a second proof",
    Service,
    tools=(Tool(),),
)
UNLOCK_SERVICE = _LIFECYCLE.operation(
    "unlockService",
    "POST /unlock",
    "Unlock a service",
    Service,
    failures=(428,),
    tools=(Tool(),),
)
READ_SERVICE_LOGS = _SERVICE.operation(
    "readServiceLogs",
    "GET /logs",
    "Read a service's log: the last lines, or as it comes",
    AnsweredOrEvents(
        model=LogPage, words="The last lines; with `follow` a stream of `line` events that does not end."
    ),
    query=ReadServiceLogsQuery,
    needs=needs(Scope.EXEC),
    tools=(Tool("getServiceLogs", leaves_out=("follow",)),),
)
GET_SERVICE_VAULT = _SERVICE.operation(
    "getServiceVault",
    "GET /env",
    "List the names in a service's vault; values are never shown",
    Vault,
    tools=(Tool("getServiceEnv"),),
)
SET_SERVICE_VAULT = _VAULT.operation(
    "setServiceVault",
    "PUT /env",
    "Replace a service's vault; its next process has it",
    Vault,
    body=SetVault,
    failures=(409,),
    tools=(Tool("setServiceEnv"),),
)
CHANGE_SERVICE_VAULT = _VAULT.operation(
    "changeServiceVault",
    "PATCH /env",
    "Set or remove single names of a service's vault",
    Vault,
    body=ChangeVault,
    failures=(409,),
    is_lossy=True,
)
WIPE_SERVICE_VAULT = _VAULT.operation(
    "wipeServiceVault",
    "DELETE /env",
    "Empty a service's vault",
    Vault,
    failures=(409,),
    tools=(Tool("deleteServiceEnv"),),
)
LIST_SERVICE_DOMAINS = _SERVICE.operation(
    "listServiceDomains", "GET /domains", "List a service's domains, verified or not", DomainList
)
CLAIM_SERVICE_DOMAIN = _SERVICE.operation(
    "claimServiceDomain",
    "POST /domains",
    "Add a domain to a service; says what it must serve to prove that it is yours",
    created(Domain),
    body=ClaimDomain,
    failures=(409,),
    way_out=WayOut(),
)
VERIFY_SERVICE_DOMAIN = _DOMAIN.operation(
    "verifyServiceDomain",
    "POST /verify",
    "Verify a domain: once it serves the token, it leads to the service",
    Domain,
    failures=(409,),
    way_out=WayOut(),
)
REMOVE_SERVICE_DOMAIN = _DOMAIN.operation(
    "removeServiceDomain", "DELETE", "Remove a domain from a service", Nothing()
)
