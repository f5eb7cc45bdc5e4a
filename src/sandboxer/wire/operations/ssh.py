"""The operations on ssh."""

from __future__ import annotations

from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    Access,
    Answered,
    AnyOperation,
    Empty,
    Idempotency,
    Json,
    NoParameters,
    Nothing,
    Operation,
    RateClass,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import SshKeyPath
from sandboxer.wire.ssh import AddSshKey, SshGateway, SshKey, SshKeyList

GET_SSH_GATEWAY = Operation(
    id="getSshGateway",
    method="GET",
    path="/v1/ssh",
    noun="ssh",
    summary="Where to come in: ssh sbx_…@host -p port",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=SshGateway),
    access=Access.SIGNED,
    needs=ANY_KEY,
    rate=RateClass.API,
)
ADD_SSH_KEY = Operation(
    id="addSshKey",
    method="POST",
    path="/v1/ssh-keys",
    noun="ssh",
    summary="Let a public key open one sandbox, or all of the account's",
    parameters=NoParameters,
    query=NoParameters,
    body=Json(AddSshKey),
    answer=Answered(model=SshKey, status=201),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    idempotency=Idempotency.PLAIN,
    failures=(404, 409),
)
LIST_SSH_KEYS = Operation(
    id="listSshKeys",
    method="GET",
    path="/v1/ssh-keys",
    noun="ssh",
    summary="The keys that stand, newest first",
    parameters=NoParameters,
    query=NoParameters,
    body=Empty(),
    answer=Answered(model=SshKeyList),
    access=Access.SIGNED,
    needs=needs(Scope.SANDBOXES_READ),
    rate=RateClass.API,
)
REVOKE_SSH_KEY = Operation(
    id="revokeSshKey",
    method="DELETE",
    path="/v1/ssh-keys/{key_id}",
    noun="ssh",
    summary="Revoke it; what is open by it ends within a second",
    parameters=SshKeyPath,
    query=NoParameters,
    body=Empty(),
    answer=Nothing(),
    access=Access.SIGNED,
    needs=needs(Scope.EXEC),
    rate=RateClass.API,
    failures=(404,),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    GET_SSH_GATEWAY,
    ADD_SSH_KEY,
    LIST_SSH_KEYS,
    REVOKE_SSH_KEY,
)
