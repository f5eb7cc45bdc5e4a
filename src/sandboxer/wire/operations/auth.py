"""The operations on auth."""

from __future__ import annotations

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
from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    Access,
    Answered,
    AnyOperation,
    Json,
    Nothing,
    Operation,
    Parameters,
    RateClass,
    Scope,
    needs,
)
from sandboxer.wire.operations.paths import WalletPath


class EndSessionsQuery(Parameters):
    address: Annotated[
        str | None, Field(min_length=1, max_length=200, description="Only those of this wallet (CAIP-10).")
    ] = None


CHALLENGE_WALLET = Operation(
    id="challengeWallet",
    method="POST",
    path="/v1/auth/challenge",
    noun="auth",
    summary="A text for a wallet to sign",
    answer=Answered(model=SessionChallenge),
    access=Access.UNSIGNED,
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.AUTH,
    failures=(408, 413, 422, 503),
)
OPEN_SESSION = Operation(
    id="openSession",
    method="POST",
    path="/v1/auth/session",
    noun="auth",
    summary="A session for whoever signed the challenge",
    body=Json(OpenSession),
    answer=Answered(model=Session, status=201),
    access=Access.UNSIGNED,
    needs=ANY_KEY,
    rate=RateClass.AUTH,
    failures=(401, 403, 408, 413, 422, 503),
)
CLOSE_SESSION = Operation(
    id="closeSession",
    method="DELETE",
    path="/v1/auth/session",
    noun="auth",
    summary="End the session whose token this request carries",
    answer=Nothing(),
    needs=ANY_KEY,
    rate=RateClass.AUTH,
)
END_SESSIONS = Operation(
    id="endSessions",
    method="DELETE",
    path="/v1/auth/sessions",
    noun="auth",
    summary="End every session of this account, or of one of its wallets",
    query=EndSessionsQuery,
    answer=Answered(model=SessionsEnded),
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.AUTH,
    failures=(404,),
)
OFFER_SIWX = Operation(
    id="offerSiwx",
    method="GET",
    path="/v1/auth/siwx",
    noun="auth",
    summary="What to complete and sign for Sign-in-with-X (CAIP-122)",
    answer=Answered(model=SiwxOffer),
    access=Access.UNSIGNED,
    needs=needs(Scope.ACCOUNT_READ),
    rate=RateClass.AUTH,
    failures=(503,),
)
SIGN_IN_WITH_X = Operation(
    id="signInWithX",
    method="POST",
    path="/v1/auth/siwx",
    noun="auth",
    summary="A session for whoever signed a CAIP-122 message",
    body=Json(SignIn),
    answer=Answered(model=Session, status=201),
    access=Access.UNSIGNED,
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.AUTH,
    failures=(401, 403, 408, 413, 422, 503),
)
CHALLENGE_GENESIS = Operation(
    id="challengeGenesis",
    method="POST",
    path="/v1/auth/genesis",
    noun="auth",
    summary="What two wallets sign to pass the genesis gate",
    answer=Answered(model=GenesisChallenge),
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.AUTH,
)
LIST_WALLETS = Operation(
    id="listWallets",
    method="GET",
    path="/v1/auth/wallets",
    noun="auth",
    summary="The wallets of this account",
    answer=Answered(model=WalletList),
    needs=needs(Scope.ACCOUNT_READ),
    rate=RateClass.AUTH,
)
CHALLENGE_LINK = Operation(
    id="challengeLink",
    method="POST",
    path="/v1/auth/wallets/challenge",
    noun="auth",
    summary="A text for a wallet to sign, to be linked to this account",
    answer=Answered(model=SessionChallenge),
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.AUTH,
)
LINK_WALLET = Operation(
    id="linkWallet",
    method="POST",
    path="/v1/auth/wallets",
    noun="auth",
    summary="Make a wallet another factor of this account",
    body=Json(LinkWallet),
    answer=Answered(model=WalletList, status=201),
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.AUTH,
    failures=(409, 428),
)
REVOKE_WALLET = Operation(
    id="revokeWallet",
    method="DELETE",
    path="/v1/auth/wallets/{address}",
    noun="auth",
    summary="It signs in no more; its sessions and the keys it cut end",
    parameters=WalletPath,
    answer=Nothing(),
    needs=needs(Scope.ACCOUNT_MANAGE),
    rate=RateClass.AUTH,
    failures=(404,),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    CHALLENGE_WALLET,
    OPEN_SESSION,
    CLOSE_SESSION,
    END_SESSIONS,
    OFFER_SIWX,
    SIGN_IN_WITH_X,
    CHALLENGE_GENESIS,
    LIST_WALLETS,
    CHALLENGE_LINK,
    LINK_WALLET,
    REVOKE_WALLET,
)
