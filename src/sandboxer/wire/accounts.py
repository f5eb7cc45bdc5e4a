"""Accounts and their money, as their owners see them and as the operator does."""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from sandboxer.wire.words import MAX_SATS, Answer, Moment, Request, When

Sats = Annotated[int, Field(ge=1, le=MAX_SATS, description="Whole sats.", examples=[1000])]
AccountId = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", max_length=63, description="Id of an account.")
]
TransferId = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        max_length=100,
        description="Chosen by you before the call: the same id moves money once.",
        examples=["order-17"],
    ),
]
Why = Annotated[
    str, Field(min_length=1, max_length=500, pattern=r"\S", description="Why; it is written down.")
]


class Caps(Request):
    per_key_sats: Annotated[int | None, Field(ge=0, le=MAX_SATS)] = None
    per_sandbox_sats: Annotated[int | None, Field(ge=0, le=MAX_SATS)] = None
    per_day_sats: Annotated[int | None, Field(ge=0, le=MAX_SATS)] = None


class Balance(Answer):
    """All in sats, as of this moment; reading charges nothing."""

    balance: int
    held: Annotated[int, Field(description="Set aside for creates and budgets.")]
    reserved: Annotated[int, Field(description="Kept for what runs.")]
    available: int
    debt: int
    incoming: Annotated[int, Field(description="Announced and not final.")]
    rate_msats: Annotated[int, Field(description="What runs costs so much per second, in thousandths.")]
    standing: str
    dry_at: Moment | None = None
    reap_at: Moment | None = None


class Account(Answer):
    id: str
    public_id: Annotated[str, Field(description="By this anyone may pay for it.")]
    kind: Literal["owner", "customer", "delegated"]
    name: str
    status: Literal["active", "suspended", "closed"]
    tier: Annotated[int | None, Field(description="Entitled to now.")] = None
    entitled_until: Moment | None = None
    caps: dict[str, int]
    created_at: Moment


class AccountReport(Answer):
    account: Account
    money: Balance | None = None


class Me(Answer):
    account: Account
    money: Balance
    ancestry: Annotated[list[str], Field(description="From the root to this account.")]
    scopes: list[str]
    depth: Annotated[int, Field(description="Generations of delegated keys that may still follow.")]
    slots: Annotated[int | None, Field(description="Sandboxes at once, children's included.")] = None
    expires_at: Moment | None = None
    requests_per_minute: Annotated[int | None, Field(description="None: no limit.")] = None


class AccountPage(Answer):
    accounts: list[Account]
    next_after: str | None = None


class TransferLine(Answer):
    seq: int
    at: Moment
    id: str
    kind: str
    phase: str
    asset: str
    debit: str
    credit: str
    amount: int
    change: Annotated[int, Field(description="What it did to this account.")]
    reason: str
    data: dict[str, Any]


class TransferPage(Answer):
    transfers: list[TransferLine]
    next_cursor: str | None = None


class SendSats(Request):
    to: Annotated[
        str, Field(pattern=r"^pub_[0-9a-z]{1,60}$", max_length=64, description="The receiver's public id.")
    ]
    sats: Sats
    id: TransferId
    reason: Why


class Moved(Answer):
    id: str
    sats: int
    is_new: Annotated[bool, Field(description="False: this very transfer was made before.")]


class UsageLine(Answer):
    subject: str
    use: str
    began_at: Moment
    ended_at: Moment
    seconds: float
    msats: int


class UsageReport(Answer):
    account: str
    since: Moment
    until: Moment
    usage: list[UsageLine]
    total_msats: int


class UsageSegment(Answer):
    seq: int
    id: str
    account: str
    subject: str
    use: str
    rate_msats: int
    began_at: Moment
    ended_at: Moment
    seconds: Annotated[float, Field(description="Below zero: time of an earlier segment is given back.")]
    msats: Annotated[int, Field(description="Rounded down; the rate and the times say it exactly.")]


class UsageSegmentPage(Answer):
    segments: list[UsageSegment]
    next_after: Annotated[int, Field(description="Give it as `after` to read on; keep it between pulls.")]


class UsageOfSandbox(Answer):
    id: Annotated[str, Field(description="The same by pull and by push (`hub.usage`).")]
    sandbox_id: str
    extension_id: Annotated[str, Field(examples=["ext.namespaces"])]
    profile_id: str
    account: str
    consumer: dict[str, JsonValue]
    duration_s: Annotated[float, Field(description="From ready to gone.")]
    actual_usd: Annotated[str | None, Field(description="Exact; null without the operator's own rate.")]
    actual_nsats: Annotated[int, Field(description="Billionths of a sat, exact.")]
    usd_per_btc: str | None


class UsageOfSandboxesPage(Answer):
    sandboxes: list[UsageOfSandbox]
    next_after: Annotated[int, Field(description="Give it as `after` to read on; keep it between pulls.")]


class CreateAccount(Request):
    id: AccountId | None = None
    name: Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")] = ""
    caps: Caps = Caps()
    reason: Why


class ChangeAccount(Request):
    reason: Why


class AdjustAccount(Request):
    sats: Annotated[
        int, Field(ge=-MAX_SATS, le=MAX_SATS, description="Above zero gives, below takes; not zero.")
    ]
    id: TransferId
    reason: Why


class EntitleAccount(Request):
    tier: Annotated[int | None, Field(ge=1, le=32)] = None
    until: When | None = None
    reason: Why


class CapAccount(Request):
    caps: Caps
    reason: Why


class PayOut(Request):
    sats: Sats
    id: TransferId
    reason: Why


class LedgerProof(Answer):
    is_whole: bool
    accounts: int
    transfers: int
    segments: int
    sums: dict[str, int]
    faults: list[str]


class LedgerTotals(Answer):
    totals: Annotated[dict[str, dict[str, int]], Field(description="By asset and kind of account.")]


class AuditEntry(Answer):
    seq: int
    at: Moment
    actor: str
    action: str
    subject: str
    reason: str
    data: dict[str, Any]
    previous: str
    hash: str


class AuditPage(Answer):
    entries: list[AuditEntry]
    next_after: int | None = None


class AuditProof(Answer):
    is_whole: bool
    rows: int
    head_seq: int
    head_hash: str
    broken_at: int | None = None
    why: str | None = None
