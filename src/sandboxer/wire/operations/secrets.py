"""The operations on secrets."""

from __future__ import annotations

from sandboxer.wire.operations.declaration import (
    Answered,
    AnyOperation,
    Empty,
    Json,
    NoParameters,
    Nothing,
    Operation,
)
from sandboxer.wire.operations.paths import InjectedSecretPath, SandboxPath, SecretPath
from sandboxer.wire.operations.terms import Access, RateClass, Scope, Visit, needs
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
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=SecretList),
    access=Access.SIGNED,
    needs=needs(Scope.ACCOUNT_READ),
    rate=RateClass.API,
)
PUT_SECRET = Operation(
    id="putSecret",
    method="PUT",
    path="/v1/secrets/{name}",
    noun="secrets",
    summary="Keep a secret, sealed; in place of one of this name",
    parameters=SecretPath,
    query=NoParameters,
    body=Json(PutSecret),
    answer=Answered(model=Secret),
    access=Access.SIGNED,
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.API,
    failures=(409,),
)
REMOVE_SECRET = Operation(
    id="removeSecret",
    method="DELETE",
    path="/v1/secrets/{name}",
    noun="secrets",
    summary="Forget it; sandboxes that have it keep it until it is wiped there",
    parameters=SecretPath,
    query=NoParameters,
    body=Empty(),
    answer=Nothing(),
    access=Access.SIGNED,
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.API,
    failures=(404,),
)
INJECT_SECRETS = Operation(
    id="injectSecrets",
    method="PUT",
    path="/v1/sandboxes/{sandbox_id}/secrets",
    noun="secrets",
    summary="Give a sandbox secrets while everything in it goes on",
    parameters=SandboxPath,
    query=NoParameters,
    body=Json(InjectSecrets),
    answer=Answered(model=InjectedSecretList),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.secrets"),
)
LIST_INJECTED_SECRETS = Operation(
    id="listInjectedSecrets",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/secrets",
    noun="secrets",
    summary="Names of what was injected",
    parameters=SandboxPath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=InjectedSecretList),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_READ),
    rate=RateClass.API,
    failures=(404,),
    visit=Visit(thing="sandbox", action="sandbox.secrets"),
)
WIPE_SECRETS = Operation(
    id="wipeSecrets",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/secrets",
    noun="secrets",
    summary="Wipe all: files removed, no command gets them any more",
    parameters=SandboxPath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=WipedSecrets),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.secrets"),
)
WIPE_SECRET = Operation(
    id="wipeSecret",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/secrets/{name}",
    noun="secrets",
    summary="Wipe one",
    parameters=InjectedSecretPath,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=WipedSecrets),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404, 409, 502),
    visit=Visit(thing="sandbox", action="sandbox.secrets"),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    LIST_SECRETS,
    PUT_SECRET,
    REMOVE_SECRET,
    INJECT_SECRETS,
    LIST_INJECTED_SECRETS,
    WIPE_SECRETS,
    WIPE_SECRET,
)
