"""The operations on egress."""

from __future__ import annotations

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
    Answered,
    AnyOperation,
    Json,
    Operation,
    OperatorAudit,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import SandboxPath

GET_EGRESS = Operation(
    id="getEgress",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/egress",
    noun="egress",
    summary="The rules that stand, and what went through",
    parameters=SandboxPath,
    answer=Answered(model=Egress),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.egress"),
)
REPLACE_EGRESS = Operation(
    id="replaceEgress",
    method="PUT",
    path="/v1/sandboxes/{sandbox_id}/egress",
    noun="egress",
    summary="Other rules, at once; connections that they do not allow end",
    parameters=SandboxPath,
    body=Json(ReplaceEgress),
    answer=Answered(model=Egress),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.egress"),
)
CHANGE_EGRESS = Operation(
    id="changeEgress",
    method="PATCH",
    path="/v1/sandboxes/{sandbox_id}/egress",
    noun="egress",
    summary="Add and take away rules, at once; connections that they do not allow end",
    parameters=SandboxPath,
    body=Json(ChangeEgress),
    answer=Answered(model=Egress),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.egress"),
)
EXPLAIN_EGRESS = Operation(
    id="explainEgress",
    method="POST",
    path="/v1/sandboxes/{sandbox_id}/egress/explain",
    noun="egress",
    summary="Would this be allowed, and by which rule? Asks nobody outside",
    parameters=SandboxPath,
    body=Json(ExplainEgress),
    answer=Answered(model=EgressExplained),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404, 409),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.egress.explain"),
)
LIST_EGRESS_DENIALS = Operation(
    id="listEgressDenials",
    method="GET",
    path="/v1/sandboxes/{sandbox_id}/egress/denials",
    noun="egress",
    summary="What it was refused lately; the same thing over and over is one entry",
    parameters=SandboxPath,
    answer=Answered(model=EgressDenialList),
    needs=needs(Scope.SANDBOXES_READ),
    failures=(404,),
    operator_audit=OperatorAudit(thing="sandbox", action="sandbox.egress.denials"),
)
GET_ACCOUNT_EGRESS = Operation(
    id="getAccountEgress",
    method="GET",
    path="/v1/egress",
    noun="egress",
    summary="Rules that hold in all sandboxes of the account",
    answer=Answered(model=AccountEgress),
    needs=needs(Scope.ACCOUNT_READ),
)
REPLACE_ACCOUNT_EGRESS = Operation(
    id="replaceAccountEgress",
    method="PUT",
    path="/v1/egress",
    noun="egress",
    summary="Other rules for all sandboxes of the account, at once",
    body=Json(ReplaceAccountEgress),
    answer=Answered(model=AccountEgress),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(409,),
)
CHANGE_ACCOUNT_EGRESS = Operation(
    id="changeAccountEgress",
    method="PATCH",
    path="/v1/egress",
    noun="egress",
    summary="Add and take away rules of all sandboxes of the account, at once",
    body=Json(ChangeAccountEgress),
    answer=Answered(model=AccountEgress),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(409,),
)
EXPLAIN_ACCOUNT_EGRESS = Operation(
    id="explainAccountEgress",
    method="POST",
    path="/v1/egress/explain",
    noun="egress",
    summary="What do the account's rules alone say of this? Asks nobody outside",
    body=Json(ExplainEgress),
    answer=Answered(model=EgressExplained),
    needs=needs(Scope.ACCOUNT_READ),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    GET_EGRESS,
    REPLACE_EGRESS,
    CHANGE_EGRESS,
    EXPLAIN_EGRESS,
    LIST_EGRESS_DENIALS,
    GET_ACCOUNT_EGRESS,
    REPLACE_ACCOUNT_EGRESS,
    CHANGE_ACCOUNT_EGRESS,
    EXPLAIN_ACCOUNT_EGRESS,
)
