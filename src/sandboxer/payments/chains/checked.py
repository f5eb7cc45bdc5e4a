"""A chain that is believed only after its node was seen to be the right one.

The proof is asked for before the first question, and again after every failure: whoever restarts a node may
start another one at the same address.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.payments.chains.contract import Chain, Checkable, Deposit

Told = TypeVar("Told")


class CheckedChain:
    """`Chain` around another; one that cannot be checked is believed as it is."""

    def __init__(self, chain: Chain) -> None:
        self.code = chain.code
        self._chain = chain
        self._checkable = chain if isinstance(chain, Checkable) else None
        self._is_proven = self._checkable is None

    async def check(self) -> str | None:
        """Why it should not be offered; None: all is well. Raises ChainUnavailable."""
        if self._checkable is None:
            return None
        if (why := await self._prove(self._checkable)) is not None:
            return why
        return await self._checkable.why_unready()

    # -- Chain ---------------------------------------------------------------------------------------------

    async def tip(self) -> int:
        await self._refuse_unproven()
        return await self._asked(self._chain.tip())

    async def fresh_address(self, index: int) -> str:
        await self._refuse_unproven()
        return await self._asked(self._chain.fresh_address(index))

    async def deposits(self, addresses: Sequence[str]) -> list[Deposit]:
        await self._refuse_unproven()
        return await self._asked(self._chain.deposits(addresses))

    def check_address(self, text: str) -> None:
        self._chain.check_address(text)

    def payment_uri(self, address: str, amount: int, label: str) -> str:
        return self._chain.payment_uri(address, amount, label)

    # -- proof ---------------------------------------------------------------------------------------------

    async def _refuse_unproven(self) -> None:
        if self._is_proven or self._checkable is None:
            return
        if (why := await self._prove(self._checkable)) is not None:
            raise ChainUnavailable(chain=self.code, why=why)

    async def _prove(self, checkable: Checkable) -> str | None:
        self._is_proven = False
        why = await checkable.why_wrong()
        self._is_proven = why is None
        return why

    async def _asked(self, question: Awaitable[Told]) -> Told:
        try:
            return await question
        except ChainUnavailable:
            self._is_proven = self._checkable is None
            raise
