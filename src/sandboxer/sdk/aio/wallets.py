"""`client.wallets`: the wallets of one's own account, and their sessions, asyncio."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.routes import wallets as routes
from sandboxer.wire.auth import SessionChallenge, Wallet


class AsyncWallets:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def list(self) -> Sequence[Wallet]:
        return (await self._line.do(routes.wallets())).wallets

    async def challenge(self) -> SessionChallenge:
        """The text that a wallet signs to become another factor of this account."""
        return await self._line.do(routes.challenge_link())

    async def link(self, nonce: str, address: str, signature: str) -> Wallet:
        """Must itself be confirmed (`confirm`)."""
        return (await self._line.do(routes.link_wallet(nonce, address, signature))).wallets[0]

    async def revoke(self, address: str) -> None:
        """It signs in no more; its sessions and the keys it cut end."""
        await self._line.do(routes.revoke_wallet(address))

    async def end_sessions(self, address: str | None = None) -> int:
        """End every session of this account, or of one wallet; returns how many were open."""
        return (await self._line.do(routes.end_sessions(address))).ended
