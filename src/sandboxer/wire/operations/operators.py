"""The operations on operators."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.accounts import (
    Account,
    AccountId,
    AccountPage,
    AccountReport,
    AdjustAccount,
    AuditPage,
    AuditProof,
    CapAccount,
    ChangeAccount,
    CreateAccount,
    EntitleAccount,
    LedgerProof,
    LedgerTotals,
    Moved,
    PayOut,
)
from sandboxer.wire.operations.declaration import (
    NEVER_DELEGATED,
    Access,
    Answered,
    AnyOperation,
    Bytes,
    Json,
    Operation,
    Parameters,
)
from sandboxer.wire.operations.paths import AccountPath
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX

MAX_SEQ = 2**53


class ListAccountsQuery(Parameters):
    after: Annotated[AccountId | None, Field(description="The last id of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


class ListAuditQuery(Parameters):
    after: Annotated[int, Field(ge=0, le=MAX_SEQ)] = 0
    subject: Annotated[str | None, Field(max_length=200, pattern="^[^\\x00]*$")] = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


class VerifyAuditQuery(Parameters):
    anchor_seq: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None
    anchor_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$", max_length=64)] = None


CREATE_ACCOUNT = Operation(
    id="createAccount",
    method="POST",
    path="/v1/accounts",
    noun="operators",
    summary="Open an account (owner)",
    body=Json(CreateAccount),
    answer=Answered(model=Account, status=201),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(409,),
)
LIST_ACCOUNTS = Operation(
    id="listAccounts",
    method="GET",
    path="/v1/accounts",
    noun="operators",
    summary="All accounts, oldest first (owner)",
    query=ListAccountsQuery,
    answer=Answered(model=AccountPage),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404,),
)
SHOW_ACCOUNT = Operation(
    id="showAccount",
    method="GET",
    path="/v1/accounts/{account_id}",
    noun="operators",
    summary="One account with its money (owner)",
    parameters=AccountPath,
    answer=Answered(model=AccountReport),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404,),
)
SUSPEND_ACCOUNT = Operation(
    id="suspendAccount",
    method="POST",
    path="/v1/accounts/{account_id}/suspend",
    noun="operators",
    summary="It and all below it may act no more; nothing is destroyed (owner)",
    parameters=AccountPath,
    body=Json(ChangeAccount),
    answer=Answered(model=Account),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404, 409),
)
REINSTATE_ACCOUNT = Operation(
    id="reinstateAccount",
    method="POST",
    path="/v1/accounts/{account_id}/reinstate",
    noun="operators",
    summary="Undo a suspension (owner)",
    parameters=AccountPath,
    body=Json(ChangeAccount),
    answer=Answered(model=Account),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404, 409),
)
CLOSE_ACCOUNT = Operation(
    id="closeAccount",
    method="POST",
    path="/v1/accounts/{account_id}/close",
    noun="operators",
    summary="For good; record and ledger stay. A 409 while anything of it runs or lives (owner)",
    parameters=AccountPath,
    body=Json(ChangeAccount),
    answer=Answered(model=Account),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404, 409),
)
ENTITLE_ACCOUNT = Operation(
    id="entitleAccount",
    method="POST",
    path="/v1/accounts/{account_id}/entitle",
    noun="operators",
    summary="Give a tier until a date, or take it (owner)",
    parameters=AccountPath,
    body=Json(EntitleAccount),
    answer=Answered(model=Account),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404,),
)
CAP_ACCOUNT = Operation(
    id="capAccount",
    method="PUT",
    path="/v1/accounts/{account_id}/caps",
    noun="operators",
    summary="Spending caps (owner)",
    parameters=AccountPath,
    body=Json(CapAccount),
    answer=Answered(model=Account),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404,),
)
ADJUST_ACCOUNT = Operation(
    id="adjustAccount",
    method="POST",
    path="/v1/accounts/{account_id}/adjust",
    noun="operators",
    summary="Give or take sats, with a reason; the same id adjusts once (owner)",
    parameters=AccountPath,
    body=Json(AdjustAccount),
    answer=Answered(model=Moved),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    is_repeatable=True,
    failures=(402, 404, 409),
)
PAY_OUT = Operation(
    id="payOut",
    method="POST",
    path="/v1/payouts",
    noun="operators",
    summary="Take income out, at most what was earned; the same id pays once (owner)",
    body=Json(PayOut),
    answer=Answered(model=Moved, status=201),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    is_repeatable=True,
    failures=(402, 409),
)
SHOW_LEDGER_TOTALS = Operation(
    id="showLedgerTotals",
    method="GET",
    path="/v1/ledger/totals",
    noun="operators",
    summary="What all ledger accounts of each kind hold (owner)",
    answer=Answered(model=LedgerTotals),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
)
VERIFY_LEDGER = Operation(
    id="verifyLedger",
    method="GET",
    path="/v1/ledger/verify",
    noun="operators",
    summary="Recompute everything derived and compare (owner)",
    answer=Answered(model=LedgerProof),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    patience_s=600.0,
)
LIST_AUDIT = Operation(
    id="listAudit",
    method="GET",
    path="/v1/audit",
    noun="operators",
    summary="Who did what, oldest first (owner)",
    query=ListAuditQuery,
    answer=Answered(model=AuditPage),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
)
EXPORT_AUDIT = Operation(
    id="exportAudit",
    method="GET",
    path="/v1/audit/export",
    noun="operators",
    summary="The whole audit log (owner)",
    answer=Bytes(
        media_type="application/x-ndjson",
        words="One JSON object a line; the last one's seq and hash are an anchor.",
        is_text=True,
    ),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    patience_s=600.0,
)
VERIFY_AUDIT = Operation(
    id="verifyAudit",
    method="GET",
    path="/v1/audit/verify",
    noun="operators",
    summary="Walk the chain of the audit log, from an anchor kept elsewhere if you have one (owner)",
    query=VerifyAuditQuery,
    answer=Answered(model=AuditProof),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    patience_s=600.0,
)

OPERATIONS: tuple[AnyOperation, ...] = (
    CREATE_ACCOUNT,
    LIST_ACCOUNTS,
    SHOW_ACCOUNT,
    SUSPEND_ACCOUNT,
    REINSTATE_ACCOUNT,
    CLOSE_ACCOUNT,
    ENTITLE_ACCOUNT,
    CAP_ACCOUNT,
    ADJUST_ACCOUNT,
    PAY_OUT,
    SHOW_LEDGER_TOTALS,
    VERIFY_LEDGER,
    LIST_AUDIT,
    EXPORT_AUDIT,
    VERIFY_AUDIT,
)
