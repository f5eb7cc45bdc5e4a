"""Routes to sign in with a wallet, and to manage the wallets of an account."""

from __future__ import annotations

from starlette.responses import Response

from sandboxer.accounts.revocation import CutKeys
from sandboxer.edges.http.answers import nothing
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.demands import confirm_new_factor
from sandboxer.edges.http.matcher import Binding
from sandboxer.identity.sessions.sessions import OpenedSession
from sandboxer.identity.sessions.tokens import session_token
from sandboxer.kernel.errors import InvalidRequest, NotAvailable
from sandboxer.wire import auth
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
from sandboxer.wire.operations import auth as operations
from sandboxer.wire.operations.auth import EndSessionsQuery
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import WalletPath


async def challenge(asked: Asked[NoParameters, NoParameters, None]) -> SessionChallenge:
    made = await asked.platform.wallets.sessions.challenge()
    return auth.SessionChallenge(nonce=made.nonce, message=made.message, expires_at=made.expires_at)


async def open_session(asked: Asked[NoParameters, NoParameters, OpenSession]) -> Session:
    opened = await asked.platform.wallets.sessions.open_session(
        asked.body.nonce, asked.body.signature, asked.body.address
    )
    return _session(opened)


async def close_session(asked: Asked[NoParameters, NoParameters, None]) -> Response:
    token = session_token(asked.request.scope["headers"])
    if token is None:
        raise InvalidRequest(field="Authorization", why="this request came without a session's token")
    await asked.platform.wallets.sessions.revoke(token)
    return nothing()


async def end_sessions(asked: Asked[NoParameters, EndSessionsQuery, None]) -> SessionsEnded:
    who = asked.caller
    ended = await asked.platform.wallets.sessions.end_all(
        who.account, address=asked.query.address, actor=f"key:{who.public_key}"
    )
    return auth.SessionsEnded(ended=ended)


async def offer(asked: Asked[NoParameters, NoParameters, None]) -> SiwxOffer:
    return auth.SiwxOffer.model_validate(await asked.platform.wallets.siwx.offer())


async def sign_in(asked: Asked[NoParameters, NoParameters, SignIn]) -> Session:
    opened = await asked.platform.wallets.siwx.sign_in(asked.body.message, asked.body.signature)
    return _session(opened)


async def genesis(asked: Asked[NoParameters, NoParameters, None]) -> GenesisChallenge:
    gate = asked.platform.wallets.gate
    if gate is None:
        raise NotAvailable(what="The genesis gate", why="the operator named no registry")
    made = await gate.challenge(asked.caller.account)
    return auth.GenesisChallenge(
        nonce=made.nonce,
        account=made.account,
        btc_message=made.btc_message,
        sip018_domain=made.sip018_domain,
        sip018_message=made.sip018_message,
        expires_at=made.expires_at,
    )


async def wallets(asked: Asked[NoParameters, NoParameters, None]) -> WalletList:
    known = await asked.platform.wallets.wallets.of_account(asked.caller.account)
    shown = [
        auth.Wallet(address=one.address, created_at=one.created_at, revoked_at=one.revoked_at)
        for one in known
    ]
    return auth.WalletList(wallets=shown)


async def challenge_link(asked: Asked[NoParameters, NoParameters, None]) -> SessionChallenge:
    made = await asked.platform.wallets.sessions.challenge(link_to=asked.caller.account)
    return auth.SessionChallenge(nonce=made.nonce, message=made.message, expires_at=made.expires_at)


async def link(asked: Asked[NoParameters, NoParameters, LinkWallet]) -> WalletList:
    await confirm_new_factor(asked.request, action="link_wallet", resource=asked.body.address)
    platform = asked.platform
    linked = await platform.wallets.sessions.link_wallet(
        asked.caller.account, asked.body.nonce, asked.body.address, asked.body.signature
    )
    known = await platform.wallets.wallets.of_account(asked.caller.account)
    shown = [
        auth.Wallet(address=one.address, created_at=one.created_at, revoked_at=one.revoked_at)
        for one in known
        if one.address == linked.caip10
    ]
    return auth.WalletList(wallets=shown)


async def revoke_wallet(asked: Asked[WalletPath, NoParameters, None]) -> Response:
    platform, who = asked.platform, asked.caller
    actor = f"key:{who.public_key}"
    cut = CutKeys(asked.path.address, actor=actor, now=platform.clock.now())
    await platform.wallets.wallets.revoke(
        who.account, asked.path.address, actor=actor, also=lambda conn, _: cut.end(conn)
    )
    for gone in cut.ended:
        platform.keys.forget(gone)
    return nothing()


def _session(opened: OpenedSession) -> auth.Session:
    return auth.Session(
        token=opened.token, address=opened.address, account=opened.account, expires_at=opened.expires_at
    )


BINDINGS: tuple[Binding, ...] = (
    bind(operations.CHALLENGE_WALLET, challenge),
    bind(operations.OPEN_SESSION, open_session),
    bind(operations.CLOSE_SESSION, close_session),
    bind(operations.END_SESSIONS, end_sessions),
    bind(operations.OFFER_SIWX, offer),
    bind(operations.SIGN_IN_WITH_X, sign_in),
    bind(operations.CHALLENGE_GENESIS, genesis),
    bind(operations.LIST_WALLETS, wallets),
    bind(operations.CHALLENGE_LINK, challenge_link),
    bind(operations.LINK_WALLET, link),
    bind(operations.REVOKE_WALLET, revoke_wallet),
)
