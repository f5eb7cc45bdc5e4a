"""The operations on what goes into a sandbox and out of it: egress, previews, secrets, SSH."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sandboxer.wire.egress import (
    AccountEgress,
    ChangeAccountEgress,
    ChangeEgress,
    Egress,
    EgressDenialList,
    EgressExplained,
    ExplainEgress,
    ReplaceAccountEgress,
    ReplaceEgress,
)
from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    NEVER_DELEGATED,
    Access,
    Answered,
    BodyScope,
    Group,
    Idempotency,
    Nothing,
    Operation,
    OperatorAudit,
    Parameters,
    RateClass,
    Relay,
    Scope,
    Tool,
    WayOut,
    created,
    needs,
)
from sandboxer.wire.operations.sandboxes import SANDBOX, SandboxPath
from sandboxer.wire.previews import CreatePreview, Exposure, KnownName, NewPreview, PreviewId, PreviewList
from sandboxer.wire.secrets import (
    InjectedSecretList,
    InjectSecrets,
    PutSecret,
    Secret,
    SecretList,
    SecretName,
    WipedSecrets,
)
from sandboxer.wire.ssh import AddSshKey, SshGateway, SshKey, SshKeyId, SshKeyList


class PreviewPath(SandboxPath):
    preview_id: PreviewId


class SecretPath(Parameters):
    name: SecretName


class InjectedSecretPath(SandboxPath):
    name: SecretName


class SshKeyPath(Parameters):
    key_id: SshKeyId


_EGRESS = replace(SANDBOX, noun="egress", needs=needs(Scope.ACCOUNT_MANAGE))
_ACCOUNT_EGRESS = Group(noun="egress", needs=needs(Scope.ACCOUNT_MANAGE), reads=needs(Scope.ACCOUNT_READ))
GET_EGRESS = _EGRESS.operation(
    "getEgress",
    "GET /egress",
    "Show the network rules of a sandbox, and what went through",
    Egress,
    failures=(409,),
)
REPLACE_EGRESS = _EGRESS.operation(
    "replaceEgress",
    "PUT /egress",
    "Replace the network rules; connections that the new ones do not allow end",
    Egress,
    body=ReplaceEgress,
    failures=(409,),
)
CHANGE_EGRESS = _EGRESS.operation(
    "changeEgress",
    "PATCH /egress",
    "Add and remove network rules; connections that are not allowed any more end",
    Egress,
    body=ChangeEgress,
    failures=(409,),
)
EXPLAIN_EGRESS = _EGRESS.operation(
    "explainEgress",
    "POST /egress/explain",
    "Say whether a URL would be allowed, and by which rule; nothing is sent there",
    EgressExplained,
    body=ExplainEgress,
    needs=needs(Scope.SANDBOXES_READ),
    failures=(409,),
)
LIST_EGRESS_DENIALS = _EGRESS.operation(
    "listEgressDenials",
    "GET /egress/denials",
    "List what a sandbox was refused lately; repetitions are one entry",
    EgressDenialList,
)
GET_ACCOUNT_EGRESS = _ACCOUNT_EGRESS.operation(
    "getAccountEgress",
    "GET /v1/egress",
    "Show the network rules of all sandboxes of the account",
    AccountEgress,
)
REPLACE_ACCOUNT_EGRESS = _ACCOUNT_EGRESS.operation(
    "replaceAccountEgress",
    "PUT /v1/egress",
    "Replace the network rules of all sandboxes of the account",
    AccountEgress,
    body=ReplaceAccountEgress,
    failures=(409,),
)
CHANGE_ACCOUNT_EGRESS = _ACCOUNT_EGRESS.operation(
    "changeAccountEgress",
    "PATCH /v1/egress",
    "Add and remove network rules of all sandboxes of the account",
    AccountEgress,
    body=ChangeAccountEgress,
    failures=(409,),
)
EXPLAIN_ACCOUNT_EGRESS = _ACCOUNT_EGRESS.operation(
    "explainAccountEgress",
    "POST /v1/egress/explain",
    "Say what the account's rules alone say of a URL; nothing is sent there",
    EgressExplained,
    body=ExplainEgress,
    needs=needs(Scope.ACCOUNT_READ),
)


class AskForNameQuery(Parameters):
    domain: Annotated[str, Field(min_length=1, max_length=253, pattern="^[\\x21-\\x7e]+$")]


_PREVIEWS = replace(SANDBOX, noun="previews", needs=needs(Scope.EXEC))
CREATE_PREVIEW = _PREVIEWS.operation(
    "createPreview",
    "POST /previews",
    "Make a link that opens a port inside a sandbox; its token is shown once",
    created(NewPreview),
    body=CreatePreview,
    needs=needs(
        Scope.EXEC,
        # Whoever opens it spends by waking: no key gives away what it may not do itself.
        adds=(BodyScope(field="wakes", scope=Scope.SANDBOXES_MANAGE),),
    ),
    idempotency=Idempotency.SECRET,
    failures=(409,),
    way_out=WayOut(),
    tools=(Tool(),),
)
GET_EXPOSURE = _PREVIEWS.operation(
    "getExposure",
    "GET /exposure",
    "Look for secrets and git folders that a program in a sandbox might show to whoever reaches it",
    Exposure,
    # It is a look into the sandbox, as with `ls`.
    needs=needs(Scope.EXEC),
)
LIST_PREVIEWS = _PREVIEWS.operation(
    "listPreviews",
    "GET /previews",
    "List the open previews of a sandbox, newest first",
    PreviewList,
    tools=(Tool(),),
)
REVOKE_PREVIEW = _PREVIEWS.below("/previews/{preview_id}", PreviewPath).operation(
    "revokePreview",
    "DELETE",
    "Close a preview: its link and its cookies stop working",
    Nothing(),
    tools=(Tool(),),
)
ASK_FOR_NAME = Operation(
    id="askForName",
    method="GET",
    path="/v1/edge/ask",
    noun="previews",
    summary="Say whether a host name is served here (for the TLS proxy)",
    query=AskForNameQuery,
    answer=Answered(model=KnownName),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(404, 422),
)
RELAY_PORT = Operation(
    id="relayPort",
    method="*",
    path="/v1/sandboxes/{sandbox_id}/ports/{port}/{rest}",
    noun="previews",
    summary="Speak with what listens on a port inside",
    parameters=SandboxPath,
    answer=Relay(words="Whatever the program answers."),
    access=Access.EITHER,
    # What listens there can do whatever a command can.
    needs=needs(Scope.EXEC),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.ports"),
)
_SECRETS = Group(noun="secrets", needs=needs(Scope.ACCOUNT_MANAGE), reads=needs(Scope.ACCOUNT_READ))
_SECRET = _SECRETS.below("/v1/secrets/{name}", SecretPath)
_INJECTED = replace(SANDBOX, noun="secrets", needs=needs(Scope.EXEC))
LIST_SECRETS = _SECRETS.operation(
    "listSecrets", "GET /v1/secrets", "List the names of the account's secrets", SecretList
)
GET_SECRET = _SECRET.operation("getSecret", "GET", "Show a secret: its size and age, never its value", Secret)
PUT_SECRET = replace(_SECRET, failures=()).operation(
    "putSecret",
    "PUT",
    "Keep a secret, encrypted; it replaces one of the same name",
    Secret,
    body=PutSecret,
    failures=(402, 409),
)
REMOVE_SECRET = _SECRET.operation(
    "removeSecret",
    "DELETE",
    "Delete a secret; sandboxes that have it keep it until it is wiped there",
    Nothing(),
)
INJECT_SECRETS = _INJECTED.operation(
    "injectSecrets",
    "PUT /secrets",
    "Give a sandbox secrets, without restarting anything",
    InjectedSecretList,
    body=InjectSecrets,
    failures=(409, 502),
)
LIST_INJECTED_SECRETS = _INJECTED.operation(
    "listInjectedSecrets",
    "GET /secrets",
    "List the names of a sandbox's injected secrets",
    InjectedSecretList,
)
WIPE_SECRETS = _INJECTED.operation(
    "wipeSecrets",
    "DELETE /secrets",
    "Wipe all secrets from a sandbox: their files are removed, new commands do not get them",
    WipedSecrets,
    failures=(409, 502),
)
WIPE_SECRET = _INJECTED.below("/secrets/{name}", InjectedSecretPath).operation(
    "wipeSecret", "DELETE", "Wipe one secret from a sandbox", WipedSecrets, failures=(409, 502)
)
_SSH = Group(noun="ssh", needs=needs(Scope.EXEC), reads=needs(Scope.SANDBOXES_READ))
GET_SSH_GATEWAY = _SSH.operation(
    "getSshGateway", "GET /v1/ssh", "Show the SSH gateway: ssh sbx_…@host -p port", SshGateway, needs=ANY_KEY
)
ADD_SSH_KEY = _SSH.operation(
    "addSshKey",
    "POST /v1/ssh-keys",
    "Let a public key open one sandbox, or all of the account's",
    created(SshKey),
    body=AddSshKey,
    idempotency=Idempotency.PLAIN,
    failures=(404, 409),
    way_out=WayOut(),
)
LIST_SSH_KEYS = _SSH.operation("listSshKeys", "GET /v1/ssh-keys", "List SSH keys, newest first", SshKeyList)
REVOKE_SSH_KEY = _SSH.below("/v1/ssh-keys/{key_id}", SshKeyPath).operation(
    "revokeSshKey", "DELETE", "Revoke an SSH key; its connections end within a second", Nothing()
)
