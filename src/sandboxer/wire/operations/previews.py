"""The operations on previews, and the door by path to ports inside a sandbox; the proxy of ports serves that
one (`edges/proxy/path_door.py`)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    NEVER_DELEGATED,
    Access,
    Answered,
    AnyOperation,
    BodyScope,
    Idempotency,
    Json,
    Nothing,
    Operation,
    OperatorAudit,
    Parameters,
    RateClass,
    Relay,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import PreviewPath, SandboxPath
from sandboxer.wire.previews import CreatePreview, KnownName, NewPreview, PreviewList

CREATE_PREVIEW = Operation(
    id="createPreview",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/previews",
    noun="previews",
    summary="An address that opens a port inside; its token is shown once",
    parameters=SandboxPath,
    body=Json(CreatePreview),
    answer=Answered(model=NewPreview, status=201),
    needs=needs(
        Scope.EXEC,
        # Whoever opens it spends by waking: no key gives away what it may not do itself.
        adds=(BodyScope(field="wakes", scope=Scope.SANDBOXES_MANAGE),),
    ),
    idempotency=Idempotency.SECRET,
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.previews"),
)
LIST_PREVIEWS = Operation(
    id="listPreviews",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/previews",
    noun="previews",
    summary="The previews that stand, newest first",
    parameters=SandboxPath,
    answer=Answered(model=PreviewList),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.previews"),
)
REVOKE_PREVIEW = Operation(
    id="revokePreview",
    method="DELETE",
    path="/v1/sandboxes/{sandbox_id}/previews/{preview_id}",
    noun="previews",
    summary="Close it again, for its cookies too",
    parameters=PreviewPath,
    answer=Nothing(),
    needs=needs(Scope.EXEC),
    failures=(404,),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.previews"),
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


class AskForNameQuery(Parameters):
    domain: Annotated[str, Field(min_length=1, max_length=253, pattern="^[\\x21-\\x7e]+$")]


ASK_FOR_NAME = Operation(
    id="askForName",
    method="GET",
    path="/v1/edge/ask",
    noun="previews",
    summary="Is a host name served here? (for the TLS edge)",
    query=AskForNameQuery,
    answer=Answered(model=KnownName),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(404, 422),
)
OPERATIONS: tuple[AnyOperation, ...] = (
    CREATE_PREVIEW,
    LIST_PREVIEWS,
    REVOKE_PREVIEW,
    ASK_FOR_NAME,
    RELAY_PORT,
)
