"""The operations on secrets."""

from __future__ import annotations

from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Json,
    Nothing,
    Operation,
    OperatorAudit,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import InjectedSecretPath, SandboxPath, SecretPath
from sandboxer.wire.secrets import (
    InjectedSecretList,
    InjectSecrets,
    PutSecret,
    Secret,
    SecretList,
    WipedSecrets,
)

LIST_SECRETS = Operation(
    id="listSecrets",
    method="GET",
    path="/v1/secrets",
    noun="secrets",
    summary="Names of the account's secrets",
    answer=Answered(model=SecretList),
    needs=needs(Scope.ACCOUNT_READ),
)
GET_SECRET = Operation(
    id="getSecret",
    method="GET",
    path="/v1/secrets/{name}",
    noun="secrets",
    summary="Look at a secret: its size and age, never its value",
    parameters=SecretPath,
    answer=Answered(model=Secret),
    needs=needs(Scope.ACCOUNT_READ),
    failures=(404,),
)
PUT_SECRET = Operation(
    id="putSecret",
    method="PUT",
    path="/v1/secrets/{name}",
    noun="secrets",
    summary="Keep a secret, sealed; in place of one of this name",
    parameters=SecretPath,
    body=Json(PutSecret),
    answer=Answered(model=Secret),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(402, 409),
)
REMOVE_SECRET = Operation(
    id="removeSecret",
    method="DELETE",
    path="/v1/secrets/{name}",
    noun="secrets",
    summary="Forget it; sandboxes that have it keep it until it is wiped there",
    parameters=SecretPath,
    answer=Nothing(),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(404,),
)
INJECT_SECRETS = Operation(
    id="injectSecrets",
    method="PUT",
    path="/v1/sandboxes/{sandbox_id}/secrets",
    noun="secrets",
    summary="Give a sandbox secrets while everything in it goes on",
    parameters=SandboxPath,
    body=Json(InjectSecrets),
    answer=Answered(model=InjectedSecretList),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.secrets"),
)
LIST_INJECTED_SECRETS = Operation(
    id="listInjectedSecrets",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/secrets",
    noun="secrets",
    summary="Names of what was injected",
    parameters=SandboxPath,
    answer=Answered(model=InjectedSecretList),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.secrets"),
)
WIPE_SECRETS = Operation(
    id="wipeSecrets",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/secrets",
    noun="secrets",
    summary="Wipe all: files removed, no command gets them any more",
    parameters=SandboxPath,
    answer=Answered(model=WipedSecrets),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.secrets"),
)
WIPE_SECRET = Operation(
    id="wipeSecret",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/secrets/{name}",
    noun="secrets",
    summary="Wipe one",
    parameters=InjectedSecretPath,
    answer=Answered(model=WipedSecrets),
    needs=needs(Scope.EXEC),
    failures=(404, 409, 502),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.secrets"),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    LIST_SECRETS,
    GET_SECRET,
    PUT_SECRET,
    REMOVE_SECRET,
    INJECT_SECRETS,
    LIST_INJECTED_SECRETS,
    WIPE_SECRETS,
    WIPE_SECRET,
)
