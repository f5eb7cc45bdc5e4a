"""Keys that sign requests. A secret is shown once, when the key is made."""

from typing import Annotated

from pydantic import Field

from sandboxer.wire.accounts import Caps, Sats, TransferId, Why
from sandboxer.wire.words import MAX_SATS, Answer, Moment, Name, Request, When


class CreateKey(Request):
    name: Name
    account: (
        Annotated[
            str,
            Field(
                pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$",
                max_length=63,
                description=(
                    "Whose sandboxes this key sees; keys of one account share them. "
                    "The owner must say it; for everyone else it is their own."
                ),
                examples=["search-team"],
            ),
        ]
        | None
    ) = None
    accepts_v1: Annotated[
        bool,
        Field(
            description="Also accept version 1 signatures, which cannot tell a replay from an honest repeat."
        ),
    ] = False


class Key(Answer):
    public_key: Annotated[str, Field(examples=["sbx-pk-…"])]
    name: str
    account: str
    is_owner: bool
    accepts_v1: bool
    created_at: Moment
    revoked_at: Moment | None = None
    suspended_at: Moment | None = None
    expires_at: Moment | None = None


class NewKey(Answer):
    """The only answer that ever holds the secret; it is never stored, also not for an Idempotency-Key."""

    public_key: str
    secret_key: Annotated[str, Field(repr=False)]
    name: str
    account: str
    accepts_v1: bool


class NewBearer(Answer):
    """The only answer that ever holds the token; a hash of it is stored."""

    public_key: str
    bearer_token: Annotated[
        str, Field(repr=False, description="For `Authorization: Bearer …`, on this host or by TLS.")
    ]


class KeyList(Answer):
    keys: list[Key]


class DelegateKey(Request):
    """A child key: never more than its parent has left. The defaults give little."""

    name: Name
    budget_sats: Annotated[
        int, Field(ge=0, le=MAX_SATS, description="Moved from your balance to its own.")
    ] = 0
    scopes: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        Field(max_length=32, description="What it may do.", examples=[["sandboxes:create", "exec"]]),
    ]
    depth: Annotated[
        int, Field(ge=0, le=1000, description="Generations it may delegate to below itself.")
    ] = 0
    slots: Annotated[int | None, Field(ge=0, le=1_000_000, description="Sandboxes at once.")] = None
    expires_at: When | None = None
    caps: Caps = Caps()


ClientCode = Annotated[
    str,
    Field(
        pattern="^[B-Z]{4}-[B-Z]{4}$",
        max_length=9,
        description="Shown in the browser.",
        examples=["BCDF-GHJK"],
    ),
]


class AllowClient(Request):
    """What a program gets that asked to act for this account. What is left out gives little."""

    name: Annotated[Name | None, Field(description="Of its key. Default: as it calls itself.")] = None
    budget_sats: Annotated[
        int, Field(ge=0, le=MAX_SATS, description="Moved from your balance to its own.")
    ] = 0
    scopes: Annotated[
        list[Annotated[str, Field(max_length=64)]] | None,
        Field(max_length=32, description="What it may do. Default: what it asked for."),
    ] = None
    slots: Annotated[int | None, Field(ge=0, le=1_000_000, description="Sandboxes at once.")] = None
    expires_at: Annotated[When | None, Field(description="Default: in 30 days.")] = None


class ClientRequest(Answer):
    """A program that asks to act for whoever allows it. Nobody has checked its name."""

    code: str
    client_id: str
    client_name: str
    answered_at: Annotated[str, Field(description="Where its answer, and with it the key, goes.")]
    scopes: list[str]
    ends_at: Moment


class DelegatedKey(Answer):
    public_key: str
    account: str
    name: str
    parent: str
    generation: int
    scopes: list[str]
    depth: int
    slots: int | None = None
    expires_at: Moment | None = None
    state: str
    reason: str
    created_at: Moment
    ended_at: Moment | None = None


class NewDelegatedKey(DelegatedKey):
    """Its secret is shown this once."""

    secret_key: Annotated[str, Field(repr=False)]
    budget_sats: int


class KeyNode(Answer):
    """An account with what hangs below it, in sats."""

    account: str
    key: DelegatedKey | None = None
    given: int
    returned: int
    outside: Annotated[int, Field(description="Paid in by anyone else.")]
    passed_on: int
    spent: int
    balance: int
    subtree_spent: int
    children: list["KeyNode"]


class TopUpKey(Request):
    sats: Sats
    id: TransferId


class ValidateKey(Request):
    public_key: Annotated[str, Field(min_length=1, max_length=64, examples=["sbx-pk-…"])]


class KeyTier(Answer):
    level: int
    requests_per_minute: int
    slots: int
    until: Moment | None = None


class KeyReport(Answer):
    public_key: str
    is_valid: bool
    reason: Annotated[str | None, Field(description="invalid_key, suspended or expired.")] = None
    expires_at: Moment | None = None
    expired_ago_s: int | None = None
    tier: KeyTier | None = None


class RevealKey(Request):
    claim: Annotated[str, Field(min_length=1, max_length=200, description="What the payer was given.")]
    regenerate: Annotated[
        bool, Field(description="The 15 minutes are over: have a new secret instead, once.")
    ] = False


class SuspendKey(Request):
    why: Why


class SetExpiry(Request):
    expires_at: Annotated[When | None, Field(description="None: never.")] = None
