"""Signing in with a wallet, and the wallets of an account."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts.revocation import CutKeys
from sandboxer.edges.http.answers import json_response, nothing
from sandboxer.edges.http.confirming import confirm_new_factor
from sandboxer.edges.http.failures import failures, stranger_failures, unsigned_failures
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.identity.sessions.bearer import session_token
from sandboxer.identity.sessions.sessions import OpenedSession
from sandboxer.kernel.errors import InvalidRequest, NotAvailable
from sandboxer.wire import auth

router = APIRouter(prefix="/v1/auth", tags=["auth"])


@router.post(
    "/challenge",
    operation_id="challengeWallet",
    response_model=auth.SessionChallenge,
    responses=stranger_failures(),
    summary="A text for a wallet to sign",
)
async def challenge(request: Request) -> Response:
    made = await platform_of(request).wallets.sessions.challenge()
    return json_response(
        auth.SessionChallenge(nonce=made.nonce, message=made.message, expires_at=made.expires_at)
    )


@router.post(
    "/session",
    operation_id="openSession",
    status_code=201,
    response_model=auth.Session,
    responses=stranger_failures(401, 403),
    summary="A session for whoever signed the challenge",
)
async def open_session(request: Request, body: auth.OpenSession) -> Response:
    opened = await platform_of(request).wallets.sessions.open_session(
        body.nonce, body.signature, body.address
    )
    return json_response(_session(opened), 201)


@router.delete(
    "/session",
    operation_id="closeSession",
    status_code=204,
    responses=failures(),
    summary="End the session whose token this request carries",
)
async def close_session(request: Request) -> Response:
    token = session_token(request.scope["headers"])
    if token is None:
        raise InvalidRequest(field="Authorization", why="this request came without a session's token")
    await platform_of(request).wallets.sessions.revoke(token)
    return nothing()


@router.delete(
    "/sessions",
    operation_id="endSessions",
    response_model=auth.SessionsEnded,
    responses=failures(404),
    summary="End every session of this account, or of one of its wallets",
)
async def end_sessions(
    request: Request,
    address: Annotated[
        str | None, Query(min_length=1, max_length=200, description="Only those of this wallet (CAIP-10).")
    ] = None,
) -> Response:
    who = caller(request)
    ended = await platform_of(request).wallets.sessions.end_all(
        who.account, address=address, actor=f"key:{who.public_key}"
    )
    return json_response(auth.SessionsEnded(ended=ended))


@router.get(
    "/siwx",
    operation_id="offerSiwx",
    response_model=auth.SiwxOffer,
    responses=unsigned_failures(503),
    summary="What to complete and sign for Sign-in-with-X (CAIP-122)",
)
async def offer(request: Request) -> Response:
    return json_response(auth.SiwxOffer.model_validate(await platform_of(request).wallets.siwx.offer()))


@router.post(
    "/siwx",
    operation_id="signInWithX",
    status_code=201,
    response_model=auth.Session,
    responses=stranger_failures(401, 403),
    summary="A session for whoever signed a CAIP-122 message",
)
async def sign_in(request: Request, body: auth.SignIn) -> Response:
    opened = await platform_of(request).wallets.siwx.sign_in(body.message, body.signature)
    return json_response(_session(opened), 201)


@router.post(
    "/genesis",
    operation_id="challengeGenesis",
    response_model=auth.GenesisChallenge,
    responses=failures(),
    summary="What two wallets sign to pass the genesis gate",
)
async def genesis(request: Request) -> Response:
    gate = platform_of(request).wallets.gate
    if gate is None:
        raise NotAvailable(what="The genesis gate", why="the operator named no registry")
    made = await gate.challenge(caller(request).account)
    shown = auth.GenesisChallenge(
        nonce=made.nonce,
        account=made.account,
        btc_message=made.btc_message,
        sip018_domain=made.sip018_domain,
        sip018_message=made.sip018_message,
        expires_at=made.expires_at,
    )
    return json_response(shown)


@router.get(
    "/wallets",
    operation_id="listWallets",
    response_model=auth.WalletList,
    responses=failures(),
    summary="The wallets of this account",
)
async def wallets(request: Request) -> Response:
    known = await platform_of(request).wallets.wallets.of_account(caller(request).account)
    shown = [
        auth.Wallet(address=one.address, created_at=one.created_at, revoked_at=one.revoked_at)
        for one in known
    ]
    return json_response(auth.WalletList(wallets=shown))


@router.post(
    "/wallets/challenge",
    operation_id="challengeLink",
    response_model=auth.SessionChallenge,
    responses=failures(),
    summary="A text for a wallet to sign, to be linked to this account",
)
async def challenge_link(request: Request) -> Response:
    made = await platform_of(request).wallets.sessions.challenge(link_to=caller(request).account)
    return json_response(
        auth.SessionChallenge(nonce=made.nonce, message=made.message, expires_at=made.expires_at)
    )


@router.post(
    "/wallets",
    operation_id="linkWallet",
    status_code=201,
    response_model=auth.WalletList,
    responses=failures(409, 428),
    summary="Make a wallet another factor of this account",
)
async def link(request: Request, body: auth.LinkWallet) -> Response:
    # Else a stolen session or key could make its own second factor.
    await confirm_new_factor(request, action="link_wallet", resource=body.address)
    platform = platform_of(request)
    linked = await platform.wallets.sessions.link_wallet(
        caller(request).account, body.nonce, body.address, body.signature
    )
    known = await platform.wallets.wallets.of_account(caller(request).account)
    shown = [
        auth.Wallet(address=one.address, created_at=one.created_at, revoked_at=one.revoked_at)
        for one in known
        if one.address == linked.caip10
    ]
    return json_response(auth.WalletList(wallets=shown), 201)


@router.delete(
    "/wallets/{address}",
    operation_id="revokeWallet",
    status_code=204,
    responses=failures(404),
    summary="It signs in no more; its sessions and the keys it cut end",
)
async def revoke_wallet(
    request: Request, address: Annotated[str, Path(min_length=1, max_length=200)]
) -> Response:
    platform, who = platform_of(request), caller(request)
    actor = f"key:{who.public_key}"
    cut = CutKeys(address, actor=actor, now=platform.clock.now())
    await platform.wallets.wallets.revoke(
        who.account, address, actor=actor, also=lambda conn, _: cut.end(conn)
    )
    for gone in cut.ended:
        platform.keys.forget(gone)
    return nothing()


def _session(opened: OpenedSession) -> auth.Session:
    return auth.Session(
        token=opened.token, address=opened.address, account=opened.account, expires_at=opened.expires_at
    )
