"""The operations on services."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    Answered,
    AnsweredOrEvents,
    AnyOperation,
    Idempotency,
    InHeader,
    Json,
    Nothing,
    Operation,
    OperatorAudit,
    Parameters,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import DomainPath, ServicePath
from sandboxer.wire.services import (
    LOG_TAIL_MAX,
    ChangeService,
    ChangeVault,
    ClaimDomain,
    CreateService,
    Domain,
    DomainList,
    LogPage,
    RedeployService,
    Service,
    ServicePage,
    ServiceState,
    SetVault,
    Vault,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor


class CreateServiceQuery(Parameters):
    wait: Annotated[bool, Field(description="Answer only when it runs, or it is known why it does not.")] = (
        True
    )


class ListServicesQuery(Parameters):
    state: Annotated[ServiceState | None, Field(description="Default: all.")] = None
    cursor: Cursor | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


class ChangeServiceQuery(Parameters):
    wait: Annotated[bool, Field(description="Answer only when it runs, or it is known why it does not.")] = (
        True
    )


class RedeployServiceQuery(Parameters):
    wait: Annotated[bool, Field(description="Answer only when it runs, or it is known why it does not.")] = (
        True
    )


class StartServiceQuery(Parameters):
    wait: Annotated[bool, Field(description="Answer only when it runs, or it is known why it does not.")] = (
        True
    )


class ReadServiceLogsQuery(Parameters):
    tail: Annotated[int, Field(ge=0, le=LOG_TAIL_MAX, description="How many of the last lines.")] = 100
    follow: Annotated[bool, Field(description="Go on with what comes.")] = False
    after: Annotated[int | None, Field(ge=0, le=2**53, description="Only lines with a greater number.")] = (
        None
    )
    last_event_id: Annotated[
        str | None, Field(pattern="^[0-9]{1,15}$", description="As `after`."), InHeader("last-event-id")
    ] = None


CREATE_SERVICE = Operation(
    id="createService",
    method="POST",
    path="/v1/services",
    noun="services",
    summary="Make a service: a process with a name that is kept running, in a sandbox of its own",
    query=CreateServiceQuery,
    body=Json(CreateService),
    answer=Answered(model=Service, status=201),
    # What it runs is the caller's code.
    needs=needs(Scope.SANDBOXES_CREATE, Scope.EXEC),
    idempotency=Idempotency.BOUND,
    patience_s=960.0,
    failures=(402, 404, 409, 502),
)
LIST_SERVICES = Operation(
    id="listServices",
    method="GET",
    path="/v1/services",
    noun="services",
    summary="List services, newest first",
    query=ListServicesQuery,
    answer=Answered(model=ServicePage),
    needs=needs(Scope.SANDBOXES_READ),
)
GET_SERVICE = Operation(
    id="getService",
    method="GET",
    path="/v1/services/{service}",
    noun="services",
    summary="Look at a service",
    parameters=ServicePath,
    answer=Answered(model=Service),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
)
CHANGE_SERVICE = Operation(
    id="changeService",
    method="PATCH",
    path="/v1/services/{service}",
    noun="services",
    summary="Change how it is kept; a change of env or port makes a new process",
    parameters=ServicePath,
    query=ChangeServiceQuery,
    body=Json(ChangeService),
    answer=Answered(model=Service),
    needs=needs(Scope.SANDBOXES_MANAGE, Scope.EXEC),
    patience_s=960.0,
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="service", action="service.patch"),
)
REMOVE_SERVICE = Operation(
    id="removeService",
    method="DELETE",
    path="/v1/services/{service}",
    noun="services",
    summary="Remove it with its sandbox, its disk and its log",
    parameters=ServicePath,
    answer=Answered(model=Service),
    needs=needs(Scope.SANDBOXES_DESTROY),
    failures=(404, 409, 428, 502),
    operator_audit=OperatorAudit(thing="service", action="service.destroy"),
)
REDEPLOY_SERVICE = Operation(
    id="redeployService",
    method="POST",
    path="/v1/services/{service}/redeploy",
    noun="services",
    summary="Give it a new program, files or environment; the old process goes on until the new one is well",
    parameters=ServicePath,
    query=RedeployServiceQuery,
    body=Json(RedeployService),
    answer=Answered(model=Service),
    needs=needs(Scope.EXEC),
    patience_s=960.0,
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="service", action="service.redeploy"),
)
FREEZE_SERVICE = Operation(
    id="freezeService",
    method="POST",
    path="/v1/services/{service}/freeze",
    noun="services",
    summary="Put it to sleep: frozen in memory, at the frozen price",
    parameters=ServicePath,
    answer=Answered(model=Service),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    patience_s=960.0,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="service", action="service.freeze"),
)
THAW_SERVICE = Operation(
    id="thawService",
    method="POST",
    path="/v1/services/{service}/thaw",
    noun="services",
    summary="Wake it",
    parameters=ServicePath,
    answer=Answered(model=Service),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    patience_s=960.0,
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="service", action="service.thaw"),
)
STOP_SERVICE = Operation(
    id="stopService",
    method="POST",
    path="/v1/services/{service}/stop",
    noun="services",
    summary="End its process and stop its sandbox; the disk is kept",
    parameters=ServicePath,
    answer=Answered(model=Service),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    patience_s=960.0,
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="service", action="service.stop"),
)
START_SERVICE = Operation(
    id="startService",
    method="POST",
    path="/v1/services/{service}/start",
    noun="services",
    summary="Start what was stopped, has failed, or was given up",
    parameters=ServicePath,
    query=StartServiceQuery,
    answer=Answered(model=Service),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    patience_s=960.0,
    failures=(402, 404, 409, 502),
    operator_audit=OperatorAudit(thing="service", action="service.start"),
)
LOCK_SERVICE = Operation(
    id="lockService",
    method="POST",
    path="/v1/services/{service}/lock",
    noun="services",
    summary="From now on removing and unlocking it need a second proof",
    parameters=ServicePath,
    answer=Answered(model=Service),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    patience_s=960.0,
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="service", action="service.lock"),
)
UNLOCK_SERVICE = Operation(
    id="unlockService",
    method="POST",
    path="/v1/services/{service}/unlock",
    noun="services",
    summary="Let it be removed by a request alone again",
    parameters=ServicePath,
    answer=Answered(model=Service),
    needs=needs(Scope.SANDBOXES_MANAGE),
    is_repeatable=True,
    patience_s=960.0,
    failures=(404, 409, 428),
    operator_audit=OperatorAudit(thing="service", action="service.unlock"),
)
READ_SERVICE_LOGS = Operation(
    id="readServiceLogs",
    method="GET",
    path="/v1/services/{service}/logs",
    noun="services",
    summary="What it printed: the last lines, or as it comes",
    parameters=ServicePath,
    query=ReadServiceLogsQuery,
    answer=AnsweredOrEvents(
        model=LogPage, words="The last lines; with `follow` a stream of `line` events that does not end."
    ),
    needs=needs(Scope.EXEC),
    failures=(404,),
    operator_audit=OperatorAudit(thing="service", action="service.logs"),
)
GET_SERVICE_VAULT = Operation(
    id="getServiceVault",
    method="GET",
    path="/v1/services/{service}/env",
    noun="services",
    summary="Names in its vault; values never come out",
    parameters=ServicePath,
    answer=Answered(model=Vault),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
    operator_audit=OperatorAudit(thing="service", action="service.env"),
)
SET_SERVICE_VAULT = Operation(
    id="setServiceVault",
    method="PUT",
    path="/v1/services/{service}/env",
    noun="services",
    summary="Replace what is in its vault; its next process has it",
    parameters=ServicePath,
    body=Json(SetVault),
    answer=Answered(model=Vault),
    needs=needs(Scope.EXEC),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="service", action="service.env"),
)
CHANGE_SERVICE_VAULT = Operation(
    id="changeServiceVault",
    method="PATCH",
    path="/v1/services/{service}/env",
    noun="services",
    summary="Set or take out single names of its vault",
    parameters=ServicePath,
    body=Json(ChangeVault),
    answer=Answered(model=Vault),
    needs=needs(Scope.EXEC),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="service", action="service.env"),
)
WIPE_SERVICE_VAULT = Operation(
    id="wipeServiceVault",
    method="DELETE",
    path="/v1/services/{service}/env",
    noun="services",
    summary="Empty its vault",
    parameters=ServicePath,
    answer=Answered(model=Vault),
    needs=needs(Scope.EXEC),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="service", action="service.env"),
)
LIST_SERVICE_DOMAINS = Operation(
    id="listServiceDomains",
    method="GET",
    path="/v1/services/{service}/domains",
    noun="services",
    summary="Domains of its own, proven or not",
    parameters=ServicePath,
    answer=Answered(model=DomainList),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
    operator_audit=OperatorAudit(thing="service", action="service.domains"),
)
CLAIM_SERVICE_DOMAIN = Operation(
    id="claimServiceDomain",
    method="POST",
    path="/v1/services/{service}/domains",
    noun="services",
    summary="Claim a domain; says what it must serve to prove that it is yours",
    parameters=ServicePath,
    body=Json(ClaimDomain),
    answer=Answered(model=Domain, status=201),
    needs=needs(Scope.SANDBOXES_MANAGE),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="service", action="service.domains"),
)
VERIFY_SERVICE_DOMAIN = Operation(
    id="verifyServiceDomain",
    method="POST",
    path="/v1/services/{service}/domains/{domain}/verify",
    noun="services",
    summary="Look whether the domain serves the token; from then on it leads here",
    parameters=DomainPath,
    answer=Answered(model=Domain),
    needs=needs(Scope.SANDBOXES_MANAGE),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="service", action="service.domains.verify"),
)
REMOVE_SERVICE_DOMAIN = Operation(
    id="removeServiceDomain",
    method="DELETE",
    path="/v1/services/{service}/domains/{domain}",
    noun="services",
    summary="Let a domain go",
    parameters=DomainPath,
    answer=Nothing(),
    needs=needs(Scope.SANDBOXES_MANAGE),
    failures=(404,),
    operator_audit=OperatorAudit(thing="service", action="service.domains"),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    CREATE_SERVICE,
    LIST_SERVICES,
    GET_SERVICE,
    CHANGE_SERVICE,
    REMOVE_SERVICE,
    REDEPLOY_SERVICE,
    FREEZE_SERVICE,
    THAW_SERVICE,
    STOP_SERVICE,
    START_SERVICE,
    LOCK_SERVICE,
    UNLOCK_SERVICE,
    READ_SERVICE_LOGS,
    GET_SERVICE_VAULT,
    SET_SERVICE_VAULT,
    CHANGE_SERVICE_VAULT,
    WIPE_SERVICE_VAULT,
    LIST_SERVICE_DOMAINS,
    CLAIM_SERVICE_DOMAIN,
    VERIFY_SERVICE_DOMAIN,
    REMOVE_SERVICE_DOMAIN,
)
