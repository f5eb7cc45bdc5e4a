"""Wallets of an account and the sessions they opened."""

from __future__ import annotations

from sandboxer.sdk.calls import Call, json_body, target
from sandboxer.sdk.routes.reading import model, nothing
from sandboxer.wire.auth import SessionChallenge, SessionsEnded, WalletList


def wallets() -> Call[WalletList]:
    return Call(method="GET", target="/v1/auth/wallets", read=model(WalletList))


def challenge_link() -> Call[SessionChallenge]:
    return Call(method="POST", target="/v1/auth/wallets/challenge", read=model(SessionChallenge))


def link_wallet(nonce: str, address: str, signature: str) -> Call[WalletList]:
    body, headers = json_body({"nonce": nonce, "address": address, "signature": signature})
    return Call(method="POST", target="/v1/auth/wallets", body=body, headers=headers, read=model(WalletList))


def revoke_wallet(address: str) -> Call[None]:
    return Call(method="DELETE", target=target("/v1/auth/wallets/{}", address), read=nothing)


def end_sessions(address: str | None) -> Call[SessionsEnded]:
    where = target("/v1/auth/sessions", query={"address": address})
    return Call(method="DELETE", target=where, read=model(SessionsEnded))
