# Written by scripts/generate-calls from wire/operations. Do not edit.
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
    """Ask for a text that a wallet signs to sign in."""
    return Call(
        operation="challengeWallet",
        method="POST",
        target="/v1/auth/challenge",
        answer="sandboxer.wire.auth:SessionChallenge",
    )


def open_session(*, nonce: str, signature: str, address: str | None = None) -> Call[Session]:
    """Open a session for a wallet that signed the challenge."""
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
    """Show what to complete and sign for Sign-in-with-X (CAIP-122)."""
    return Call(
        operation="offerSiwx",
        method="GET",
        target="/v1/auth/siwx",
        answer="sandboxer.wire.auth:SiwxOffer",
    )


def sign_in_with_x(*, message: str, signature: str) -> Call[Session]:
    """Open a session for a wallet that signed a CAIP-122 message."""
    return Call(
        operation="signInWithX",
        method="POST",
        target="/v1/auth/siwx",
        answer="sandboxer.wire.auth:Session",
        body=json_body({"message": message, "signature": signature}),
        headers=headers_of(content_type="application/json"),
    )


def challenge_genesis() -> Call[GenesisChallenge]:
    """Ask for the text that two wallets sign to pass the genesis gate."""
    return Call(
        operation="challengeGenesis",
        method="POST",
        target="/v1/auth/genesis",
        answer="sandboxer.wire.auth:GenesisChallenge",
    )


def list_wallets() -> Call[WalletList]:
    """List the wallets of this account."""
    return Call(
        operation="listWallets",
        method="GET",
        target="/v1/auth/wallets",
        answer="sandboxer.wire.auth:WalletList",
    )


def challenge_link() -> Call[SessionChallenge]:
    """Ask for a text that a wallet signs to be linked to this account."""
    return Call(
        operation="challengeLink",
        method="POST",
        target="/v1/auth/wallets/challenge",
        answer="sandboxer.wire.auth:SessionChallenge",
    )


def link_wallet(*, nonce: str, address: str, signature: str) -> Call[WalletList]:
    """Link a wallet to this account: it signs in, and gives second proofs."""
    return Call(
        operation="linkWallet",
        method="POST",
        target="/v1/auth/wallets",
        answer="sandboxer.wire.auth:WalletList",
        body=json_body({"nonce": nonce, "address": address, "signature": signature}),
        headers=headers_of(content_type="application/json"),
    )


def revoke_wallet(address: str) -> Call[None]:
    """Unlink a wallet: its sessions end, and every key it delegated."""
    return Call(
        operation="revokeWallet",
        method="DELETE",
        target=target_of("/v1/auth/wallets/{}", address),
        answer=NOTHING,
    )
