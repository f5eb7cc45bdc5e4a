# Written by scripts/generate-calls from wire/operations/auth.py. Do not edit.
"""The calls on auth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxer.sdk.call import NOTHING, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.auth import (
        GenesisChallenge,
        Session,
        SessionChallenge,
        SessionsEnded,
        SiwxOffer,
        WalletList,
    )


def challenge_wallet() -> Call[SessionChallenge]:
    """A text for a wallet to sign."""
    return Call(
        operation="challengeWallet",
        method="POST",
        target="/v1/auth/challenge",
        answer="sandboxer.wire.auth:SessionChallenge",
    )


def open_session(*, nonce: str, signature: str, address: str | None = None) -> Call[Session]:
    """A session for whoever signed the challenge."""
    return Call(
        operation="openSession",
        method="POST",
        target="/v1/auth/session",
        answer="sandboxer.wire.auth:Session",
        body=json_body({"nonce": nonce, "signature": signature}, address=address),
        headers=headers_of(content_type="application/json"),
    )


def close_session() -> Call[None]:
    """End the session whose token this request carries."""
    return Call(
        operation="closeSession",
        method="DELETE",
        target="/v1/auth/session",
        answer=NOTHING,
    )


def end_sessions(*, address: str | None = None) -> Call[SessionsEnded]:
    """End every session of this account, or of one of its wallets."""
    return Call(
        operation="endSessions",
        method="DELETE",
        target=target_of("/v1/auth/sessions", address=address),
        answer="sandboxer.wire.auth:SessionsEnded",
    )


def offer_siwx() -> Call[SiwxOffer]:
    """What to complete and sign for Sign-in-with-X (CAIP-122)."""
    return Call(
        operation="offerSiwx",
        method="GET",
        target="/v1/auth/siwx",
        answer="sandboxer.wire.auth:SiwxOffer",
    )


def sign_in_with_x(*, message: str, signature: str) -> Call[Session]:
    """A session for whoever signed a CAIP-122 message."""
    return Call(
        operation="signInWithX",
        method="POST",
        target="/v1/auth/siwx",
        answer="sandboxer.wire.auth:Session",
        body=json_body({"message": message, "signature": signature}),
        headers=headers_of(content_type="application/json"),
    )


def challenge_genesis() -> Call[GenesisChallenge]:
    """What two wallets sign to pass the genesis gate."""
    return Call(
        operation="challengeGenesis",
        method="POST",
        target="/v1/auth/genesis",
        answer="sandboxer.wire.auth:GenesisChallenge",
    )


def list_wallets() -> Call[WalletList]:
    """The wallets of this account."""
    return Call(
        operation="listWallets",
        method="GET",
        target="/v1/auth/wallets",
        answer="sandboxer.wire.auth:WalletList",
    )


def challenge_link() -> Call[SessionChallenge]:
    """A text for a wallet to sign, to be linked to this account."""
    return Call(
        operation="challengeLink",
        method="POST",
        target="/v1/auth/wallets/challenge",
        answer="sandboxer.wire.auth:SessionChallenge",
    )


def link_wallet(*, nonce: str, address: str, signature: str) -> Call[WalletList]:
    """Make a wallet another factor of this account."""
    return Call(
        operation="linkWallet",
        method="POST",
        target="/v1/auth/wallets",
        answer="sandboxer.wire.auth:WalletList",
        body=json_body({"nonce": nonce, "address": address, "signature": signature}),
        headers=headers_of(content_type="application/json"),
    )


def revoke_wallet(address: str) -> Call[None]:
    """It signs in no more; its sessions and the keys it cut end."""
    return Call(
        operation="revokeWallet",
        method="DELETE",
        target=target_of("/v1/auth/wallets/{}", address),
        answer=NOTHING,
    )
