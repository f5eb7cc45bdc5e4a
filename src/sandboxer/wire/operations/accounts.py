"""The operations on accounts and their webhooks: one's own, and all of them by the owner of the platform."""

from typing import Annotated, Literal

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
    Me,
    Moved,
    PayOut,
    SendSats,
    TransferPage,
    UsageOfSandboxesPage,
    UsageReport,
    UsageSegmentPage,
)
from sandboxer.wire.operations.declaration import (
    NEVER_DELEGATED,
    Access,
    Answered,
    Bytes,
    Group,
    Idempotency,
    Nothing,
    Offer,
    Parameters,
    Scope,
    Tool,
    WayOut,
    created,
    needs,
)
from sandboxer.wire.operations.sandboxes import EVENTS, FollowEventsQuery
from sandboxer.wire.webhooks import (
    ChangeWebhook,
    CreateWebhook,
    Delivery,
    DeliveryId,
    DeliveryPage,
    DeliveryState,
    NewWebhook,
    RotateSecret,
    Webhook,
    WebhookId,
    WebhookList,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, PageLimit, When

MAX_SEQ = 2**53


class AccountPath(Parameters):
    account_id: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9._-]{0,62}$", max_length=63)]


class WebhookPath(Parameters):
    webhook_id: WebhookId


class DeliveryPath(WebhookPath):
    delivery_id: DeliveryId


class OfAccountQuery(Parameters):
    of: Annotated[AccountId | None, Field(description="Another account (owner).")] = None


class ListTransfersQuery(OfAccountQuery):
    cursor: Annotated[str | None, Field(pattern="^[0-9]{1,18}$", max_length=18)] = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT
    format: Literal["json", "csv"] = "json"


class ShowUsageQuery(OfAccountQuery):
    since: Annotated[When | None, Field(description="Default: 30 days ago.")] = None
    until: Annotated[When | None, Field(description="Default: now.")] = None
    format: Literal["json", "csv"] = "json"


class ListUsageSegmentsQuery(OfAccountQuery):
    all_accounts: Annotated[bool, Field(description="Of every account (owner).")] = False
    after: Annotated[int, Field(ge=0, le=MAX_SEQ, description="The last page's next_after.")] = 0
    limit: PageLimit = PAGE_LIMIT_MAX
    since: Annotated[When | None, Field(description="Ended at or after.")] = None
    until: Annotated[When | None, Field(description="Ended before.")] = None
    format: Literal["json", "csv"] = "json"


class ListUsageOfSandboxesQuery(OfAccountQuery):
    all_accounts: Annotated[bool, Field(description="Of every account (owner).")] = False
    after: Annotated[int, Field(ge=0, le=MAX_SEQ, description="The last page's next_after.")] = 0
    limit: PageLimit = PAGE_LIMIT_MAX


_OWN = Group(noun="accounts", needs=needs(Scope.ACCOUNT_MANAGE), reads=needs(Scope.ACCOUNT_READ))
FOLLOW_ACCOUNT_EVENTS = _OWN.operation(
    "followAccountEvents",
    "GET /v1/accounts/me/events",
    "Follow what happens to this account: its balance is low, used up, filled; what it may do changes",
    EVENTS,
    query=FollowEventsQuery,
)
SHOW_ME = _OWN.operation(
    "showMe",
    "GET /v1/accounts/me",
    "Show this account: balance, tier, scopes, limits",
    Me,
    tools=(Tool(offer=Offer.CORE),),
)
LIST_TRANSFERS = _OWN.operation(
    "listTransfers",
    "GET /v1/transfers",
    "List transfers, newest first; format=csv exports all of them, oldest first",
    Answered(model=TransferPage, other_form=("text/csv", "Transfers.")),
    query=ListTransfersQuery,
    failures=(404,),
)
SEND_SATS = _OWN.operation(
    "sendSats",
    "POST /v1/transfers",
    "Give sats to another account by its public id; the same id gives once",
    created(Moved),
    body=SendSats,
    is_repeatable=True,
    failures=(402, 404, 409),
    # Its reason is read by whoever gets it.
    way_out=WayOut(),
)
SHOW_USAGE = _OWN.operation(
    "showUsage",
    "GET /v1/usage",
    "Show what was used between two moments, for outside billing",
    Answered(model=UsageReport, other_form=("text/csv", "Usage.")),
    query=ShowUsageQuery,
    failures=(404,),
)
LIST_USAGE_SEGMENTS = _OWN.operation(
    "listUsageSegments",
    "GET /v1/usage/segments",
    "List what was used, segment by segment, after a cursor; for outside billing",
    Answered(
        model=UsageSegmentPage,
        other_form=("text/csv", "Segments; of CSV the header x-next-after says where to read on."),
    ),
    query=ListUsageSegmentsQuery,
    failures=(404,),
)
LIST_USAGE_OF_SANDBOXES = _OWN.operation(
    "listUsageOfSandboxes",
    "GET /v1/usage/sandboxes",
    "List what each ended sandbox cost in all, once, after a cursor; as a fin-hub is told",
    UsageOfSandboxesPage,
    query=ListUsageOfSandboxesQuery,
    failures=(404,),
)


class ListAccountsQuery(Parameters):
    after: Annotated[AccountId | None, Field(description="The last id of the page before.")] = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


class ListAuditQuery(Parameters):
    after: Annotated[int, Field(ge=0, le=MAX_SEQ)] = 0
    subject: Annotated[str | None, Field(max_length=200, pattern="^[^\\x00]*$")] = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


class VerifyAuditQuery(Parameters):
    anchor_seq: Annotated[int | None, Field(ge=0, le=MAX_SEQ)] = None
    anchor_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$", max_length=64)] = None


_OWNER = Group(noun="operators", needs=NEVER_DELEGATED, access=Access.OWNER)
_ACCOUNT = _OWNER.below("/v1/accounts/{account_id}", AccountPath)
CREATE_ACCOUNT = _OWNER.operation(
    "createAccount",
    "POST /v1/accounts",
    "Open an account (owner)",
    created(Account),
    body=CreateAccount,
    failures=(409,),
)
LIST_ACCOUNTS = _OWNER.operation(
    "listAccounts",
    "GET /v1/accounts",
    "List all accounts, oldest first (owner)",
    AccountPage,
    query=ListAccountsQuery,
    failures=(404,),
)
SHOW_ACCOUNT = _ACCOUNT.operation(
    "showAccount", "GET", "Show an account and its balance (owner)", AccountReport
)
SUSPEND_ACCOUNT = _ACCOUNT.operation(
    "suspendAccount",
    "POST /suspend",
    "Suspend an account and all below it; nothing is destroyed (owner)",
    Account,
    body=ChangeAccount,
    failures=(409,),
)
REINSTATE_ACCOUNT = _ACCOUNT.operation(
    "reinstateAccount",
    "POST /reinstate",
    "Let a suspended account act again (owner)",
    Account,
    body=ChangeAccount,
    failures=(409,),
)
CLOSE_ACCOUNT = _ACCOUNT.operation(
    "closeAccount",
    "POST /close",
    "Close an account for good; record and ledger stay. 409 while anything of it is left (owner)",
    Account,
    body=ChangeAccount,
    failures=(409,),
    is_lossy=True,
)
ENTITLE_ACCOUNT = _ACCOUNT.operation(
    "entitleAccount",
    "POST /entitle",
    "Give an account a tier until a date, or take it away (owner)",
    Account,
    body=EntitleAccount,
)
CAP_ACCOUNT = _ACCOUNT.operation(
    "capAccount", "PUT /caps", "Set an account's spending caps (owner)", Account, body=CapAccount
)
ADJUST_ACCOUNT = _ACCOUNT.operation(
    "adjustAccount",
    "POST /adjust",
    "Give an account sats, or take some, with a reason; the same id adjusts once (owner)",
    Moved,
    body=AdjustAccount,
    is_repeatable=True,
    failures=(402, 409),
)
PAY_OUT = _OWNER.operation(
    "payOut",
    "POST /v1/payouts",
    "Pay income out, at most what was earned; the same id pays once (owner)",
    created(Moved),
    body=PayOut,
    is_repeatable=True,
    failures=(402, 409),
)
SHOW_LEDGER_TOTALS = _OWNER.operation(
    "showLedgerTotals",
    "GET /v1/ledger/totals",
    "Show what the ledger's accounts of each kind hold (owner)",
    LedgerTotals,
)
VERIFY_LEDGER = _OWNER.operation(
    "verifyLedger",
    "GET /v1/ledger/verify",
    "Recompute every balance and charge from the transfers, and compare (owner)",
    LedgerProof,
    patience_s=600.0,
)
LIST_AUDIT = _OWNER.operation(
    "listAudit", "GET /v1/audit", "List who did what, oldest first (owner)", AuditPage, query=ListAuditQuery
)
EXPORT_AUDIT = _OWNER.operation(
    "exportAudit",
    "GET /v1/audit/export",
    "Export the whole audit log (owner)",
    Bytes(
        media_type="application/x-ndjson",
        words="One JSON object a line; the last one's seq and hash are an anchor.",
        is_text=True,
    ),
    patience_s=600.0,
)
VERIFY_AUDIT = _OWNER.operation(
    "verifyAudit",
    "GET /v1/audit/verify",
    "Check the hash chain of the audit log, from an anchor kept elsewhere if you have one (owner)",
    AuditProof,
    query=VerifyAuditQuery,
    patience_s=600.0,
)


class ListWebhookDeliveriesQuery(Parameters):
    cursor: Annotated[str | None, Field(pattern="^[0-9]{1,18}$", max_length=18)] = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT
    state: DeliveryState | None = None


_WEBHOOKS = Group(noun="webhooks", needs=needs(Scope.ACCOUNT_MANAGE), reads=needs(Scope.ACCOUNT_READ))
_WEBHOOK = _WEBHOOKS.below("/v1/webhooks/{webhook_id}", WebhookPath)
CREATE_WEBHOOK = _WEBHOOKS.operation(
    "createWebhook",
    "POST /v1/webhooks",
    "Make a webhook: signed requests tell you what happens; its secret is shown once",
    created(NewWebhook),
    body=CreateWebhook,
    idempotency=Idempotency.SECRET,
    failures=(409,),
    way_out=WayOut(),
)
LIST_WEBHOOKS = _WEBHOOKS.operation(
    "listWebhooks", "GET /v1/webhooks", "List this account's webhooks", WebhookList
)
GET_WEBHOOK = _WEBHOOK.operation("getWebhook", "GET", "Show a webhook", Webhook)
CHANGE_WEBHOOK = _WEBHOOK.operation(
    "changeWebhook",
    "PATCH",
    "Change where a webhook goes, which events it gets, or switch it off and on",
    Webhook,
    body=ChangeWebhook,
    way_out=WayOut(),
)
REMOVE_WEBHOOK = _WEBHOOK.operation(
    "removeWebhook", "DELETE", "Remove a webhook; what waits is not sent", Nothing()
)
ROTATE_WEBHOOK_SECRET = _WEBHOOK.operation(
    "rotateWebhookSecret",
    "POST /rotate-secret",
    "Give a webhook a new secret, shown once; the old one signs beside it for a while",
    NewWebhook,
    body=RotateSecret,
)
TEST_WEBHOOK = _WEBHOOK.operation(
    "testWebhook",
    "POST /test",
    "Send a test message now, and say how it went",
    Delivery,
    way_out=WayOut(),
)
LIST_WEBHOOK_DELIVERIES = _WEBHOOK.operation(
    "listWebhookDeliveries",
    "GET /deliveries",
    "List what was sent and what waits, newest first, each with its tries",
    DeliveryPage,
    query=ListWebhookDeliveriesQuery,
)
REDELIVER_WEBHOOK = _WEBHOOK.below("/deliveries/{delivery_id}", DeliveryPath).operation(
    "redeliverWebhook",
    "POST /redeliver",
    "Send a delivery again now, whatever became of it; with the same webhook-id",
    Delivery,
    failures=(409,),
    way_out=WayOut(),
)
