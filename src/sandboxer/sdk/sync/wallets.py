"""`client.wallets`: the wallets of one's own account, and their sessions, blocking."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.routes import wallets as routes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire.auth import SessionChallenge, Wallet


class Wallets:
    def __init__(self, line: Line) -> None:
        self._line = line

    def list(self) -> Sequence[Wallet]:
        return (self._line.do(routes.wallets())).wallets

    def challenge(self) -> SessionChallenge:
        """The text that a wallet signs to become another factor of this account."""
        return self._line.do(routes.challenge_link())

    def link(self, nonce: str, address: str, signature: str) -> Wallet:
        """Must itself be confirmed (`confirm`)."""
        return (self._line.do(routes.link_wallet(nonce, address, signature))).wallets[0]

    def revoke(self, address: str) -> None:
        """It signs in no more; its sessions and the keys it cut end."""
        self._line.do(routes.revoke_wallet(address))

    def end_sessions(self, address: str | None = None) -> int:
        """End every session of this account, or of one wallet; returns how many were open."""
        return (self._line.do(routes.end_sessions(address))).ended
