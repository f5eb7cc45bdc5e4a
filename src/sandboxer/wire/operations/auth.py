"""The operations on who is calling: wallets, their sessions, and keys."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sandboxer.wire.auth import (
    GenesisChallenge,
    LinkWallet,
    OpenSession,
    Session,
    SessionChallenge,
    SessionsEnded,
    SignIn,
    SiwxOffer,
    WalletList,
)
from sandboxer.wire.keys import (
    AllowClient,
    ClientCode,
    ClientRequest,
    CreateKey,
    DelegatedKey,
    DelegateKey,
    KeyList,
    KeyNode,
    KeyReport,
    NewBearer,
    NewDelegatedKey,
    NewKey,
    RevealKey,
    SetExpiry,
    SuspendKey,
    TopUpKey,
    ValidateKey,
)
from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    Access,
    Group,
    Idempotency,
    Nothing,
    Parameters,
    RateClass,
    Scope,
    Tool,
    created,
    needs,
)


class WalletPath(Parameters):
    address: Annotated[str, Field(min_length=1, max_length=200)]


class PublicKeyPath(Parameters):
    public_key: Annotated[str, Field(pattern="^sbx-pk-[0-9a-hjkmnp-tv-z]{26}$", max_length=33)]


class ClientPath(Parameters):
    code: ClientCode


class EndSessionsQuery(Parameters):
    address: Annotated[
        str | None, Field(min_length=1, max_length=200, description="Only those of this wallet (CAIP-10).")
    ] = None


_AUTH = Group(
    noun="auth", needs=needs(Scope.ACCOUNT_MANAGE), reads=needs(Scope.ACCOUNT_READ), rate=RateClass.AUTH
)
# Who signs in has nothing yet to sign a request with.
_UNSIGNED = replace(_AUTH, access=Access.UNSIGNED, failures=(503,))
CHALLENGE_WALLET = _UNSIGNED.operation(
    "challengeWallet",
    "POST /v1/auth/challenge",
    "Ask for a text that a wallet signs to sign in",
    SessionChallenge,
    failures=(408, 413, 422),
)
OPEN_SESSION = _UNSIGNED.operation(
    "openSession",
    "POST /v1/auth/session",
    "Open a session for a wallet that signed the challenge",
    created(Session),
    body=OpenSession,
    needs=ANY_KEY,
    failures=(401, 403, 408, 413, 422),
)
CLOSE_SESSION = _AUTH.operation(
    "closeSession",
    "DELETE /v1/auth/session",
    "End the session whose token this request carries",
    Nothing(),
    needs=ANY_KEY,
)
END_SESSIONS = _AUTH.operation(
    "endSessions",
    "DELETE /v1/auth/sessions",
    "End every session of this account, or of one of its wallets",
    SessionsEnded,
    query=EndSessionsQuery,
    failures=(404,),
)
OFFER_SIWX = _UNSIGNED.operation(
    "offerSiwx",
    "GET /v1/auth/siwx",
    "Show what to complete and sign for Sign-in-with-X (CAIP-122)",
    SiwxOffer,
)
SIGN_IN_WITH_X = _UNSIGNED.operation(
    "signInWithX",
    "POST /v1/auth/siwx",
    "Open a session for a wallet that signed a CAIP-122 message",
    created(Session),
    body=SignIn,
    failures=(401, 403, 408, 413, 422),
)
CHALLENGE_GENESIS = _AUTH.operation(
    "challengeGenesis",
    "POST /v1/auth/genesis",
    "Ask for the text that two wallets sign to pass the genesis gate",
    GenesisChallenge,
)
LIST_WALLETS = _AUTH.operation(
    "listWallets", "GET /v1/auth/wallets", "List the wallets of this account", WalletList
)
CHALLENGE_LINK = _AUTH.operation(
    "challengeLink",
    "POST /v1/auth/wallets/challenge",
    "Ask for a text that a wallet signs to be linked to this account",
    SessionChallenge,
)
LINK_WALLET = _AUTH.operation(
    "linkWallet",
    "POST /v1/auth/wallets",
    "Link a wallet to this account: it signs in, and gives second proofs",
    created(WalletList),
    body=LinkWallet,
    failures=(409, 428),
)
REVOKE_WALLET = _AUTH.below("/v1/auth/wallets/{address}", WalletPath).operation(
    "revokeWallet", "DELETE", "Unlink a wallet: its sessions end, and every key it delegated", Nothing()
)
_KEYS = Group(noun="keys", needs=needs(Scope.ACCOUNT_MANAGE), reads=needs(Scope.ACCOUNT_READ))
_DELEGATION = replace(_KEYS, needs=needs(Scope.KEYS_DELEGATE))
# Asked by who holds a key or a claim, and cannot sign.
_OPEN = replace(_DELEGATION, access=Access.UNSIGNED, rate=RateClass.AUTH, failures=(408, 413, 422, 503))
_KEY = _DELEGATION.below("/v1/keys/{public_key}", PublicKeyPath)
# The owner of the platform, with the keys of all accounts.
_KEY_OF_ANYBODY = replace(_KEY, access=Access.OWNER)
VALIDATE_KEY = _OPEN.operation(
    "validateKey",
    "POST /v1/keys/validate",
    "Say whether a key is valid, with which tier and limits",
    KeyReport,
    body=ValidateKey,
)
REVEAL_KEY = _OPEN.below("/v1/keys/{public_key}", PublicKeyPath).operation(
    "revealKey",
    "POST /reveal",
    "Fetch the secret of a key that was paid for: once, within 15 minutes",
    NewKey,
    body=RevealKey,
    failures=(409,),
)
REGENERATE_KEY = replace(_KEY, rate=RateClass.AUTH).operation(
    "regenerateKey",
    "POST /regenerate",
    "Give a key a new secret; the old one ends at once",
    NewKey,
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(409, 428),
    is_lossy=True,
)
ISSUE_BEARER = replace(_KEY, rate=RateClass.AUTH).operation(
    "issueBearer",
    "POST /bearer",
    "Make a bearer token for a key; an older one ends at once",
    created(NewBearer),
    needs=needs(Scope.ACCOUNT_MANAGE),
    failures=(428,),
)
END_BEARER = _KEY.operation(
    "endBearer",
    "DELETE /bearer",
    "End the bearer token of a key; the key itself goes on",
    Nothing(),
    needs=needs(Scope.ACCOUNT_MANAGE),
)
SUSPEND_KEY = _KEY_OF_ANYBODY.operation(
    "suspendKey",
    "POST /suspend",
    "Suspend a key (owner)",
    Nothing(),
    body=SuspendKey,
    failures=(409,),
)
UNSUSPEND_KEY = _KEY_OF_ANYBODY.operation(
    "unsuspendKey", "POST /unsuspend", "Let a suspended key sign again (owner)", Nothing()
)
SET_KEY_EXPIRY = _KEY_OF_ANYBODY.operation(
    "setKeyExpiry",
    "PUT /expiry",
    "Say when a key ends by itself (owner)",
    Nothing(),
    body=SetExpiry,
    failures=(409,),
)
DELEGATE_KEY = _DELEGATION.operation(
    "cutKey",
    "POST /v1/keys/delegated",
    "Delegate a key: a child with a budget, scopes, depth, slots and an end within yours",
    created(NewDelegatedKey),
    body=DelegateKey,
    idempotency=Idempotency.SECRET,
    failures=(402, 409, 428),
    tools=(Tool(),),
)
_CLIENT = _DELEGATION.below("/v1/keys/requests/{code}", ClientPath)
SHOW_CLIENT_REQUEST = replace(_CLIENT, rate=RateClass.AUTH).operation(
    "showClientRequest",
    "GET",
    "Show which program asks to act for you, by the code in your browser",
    ClientRequest,
)
ALLOW_CLIENT = replace(_CLIENT, rate=RateClass.AUTH).operation(
    "allowClient",
    "POST /allow",
    "Let a program act for this account that asked in a browser: it gets a delegated key of its own",
    ClientRequest,
    body=AllowClient,
    failures=(428,),
)
REFUSE_CLIENT = replace(_CLIENT, rate=RateClass.AUTH).operation(
    "refuseClient", "DELETE", "Refuse a program that asked in a browser to act for this account", Nothing()
)
TOP_UP_KEY = _KEY.operation(
    "topUpKey",
    "POST /top-up",
    "Give a delegated key more sats; the same id gives once",
    DelegatedKey,
    body=TopUpKey,
    is_repeatable=True,
    failures=(402, 409),
)
CREATE_KEY = _KEYS.operation(
    "createKey",
    "POST /v1/keys",
    "Create a key; its secret is shown this once",
    created(NewKey),
    body=CreateKey,
    idempotency=Idempotency.SECRET,
    failures=(409, 428),
)
LIST_KEYS = _KEYS.operation(
    "listKeys", "GET /v1/keys", "List the keys of this account; for the owner, all", KeyList
)
SHOW_KEY_TREE = _KEYS.operation(
    "showKeyTree", "GET /v1/keys/tree", "Show every key below this account, and what each has spent", KeyNode
)
REVOKE_KEY = _KEY.operation(
    "revokeKey",
    "DELETE",
    "Revoke a key and all that was delegated from it; revoked already is success",
    Nothing(),
    failures=(409,),
)
