"""The operations on ssh."""

from __future__ import annotations

from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    Answered,
    AnyOperation,
    Idempotency,
    Json,
    Nothing,
    Operation,
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
    answer=Answered(model=SshGateway),
    needs=ANY_KEY,
)
ADD_SSH_KEY = Operation(
    id="addSshKey",
    method="POST",
    path="/v1/ssh-keys",
    noun="ssh",
    summary="Let a public key open one sandbox, or all of the account's",
    body=Json(AddSshKey),
    answer=Answered(model=SshKey, status=201),
    needs=needs(Scope.EXEC),
    idempotency=Idempotency.PLAIN,
    failures=(404, 409),
)
LIST_SSH_KEYS = Operation(
    id="listSshKeys",
    method="GET",
    path="/v1/ssh-keys",
    noun="ssh",
    summary="The keys that stand, newest first",
    answer=Answered(model=SshKeyList),
    needs=needs(Scope.SANDBOXES_READ),
)
REVOKE_SSH_KEY = Operation(
    id="revokeSshKey",
    method="DELETE",
    path="/v1/ssh-keys/{key_id}",
    noun="ssh",
    summary="Revoke it; what is open by it ends within a second",
    parameters=SshKeyPath,
    answer=Nothing(),
    needs=needs(Scope.EXEC),
    failures=(404,),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    GET_SSH_GATEWAY,
    ADD_SSH_KEY,
    LIST_SSH_KEYS,
    REVOKE_SSH_KEY,
)
