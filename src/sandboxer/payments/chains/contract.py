"""What the rest of the house may know of a chain. One small protocol, whatever node stands behind it.

An adapter believes nothing: an answer that cannot be true (deeper than the chain is high, to an address
nobody asked for, a negative amount) is refused as `ChainUnavailable`, as if the node had not answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Deposit:
    """One output to one of our addresses, as the chain shows it now; the next look may differ."""

    chain: str
    txid: str
    # Which output of the transaction: its index, or for Monero the subaddress it went to.
    output: str
    address: str
    amount: int  # atomic units
    confirmations: int  # 0: in the mempool
    block: str | None = None  # hash
    height: int | None = None
    # Monero: False when the sender locked the output; such a deposit is never money.
    unlocked: bool = True
    # The node knows that it can no longer confirm: another transaction spent its inputs.
    conflicted: bool = False

    @property
    def id(self) -> str:
        return f"{self.txid}:{self.output}"


class Chain(Protocol):
    """Watch-only: hands out addresses and sees what arrives. Every method may raise `ChainUnavailable`."""

    code: str

    async def tip(self) -> int:
        """Height of the best block."""
        ...

    async def fresh_address(self, index: int) -> str:
        """The address of this index: the same each time where the chain allows.

        Raises `AddressUsed` if it ever received anything: after a restored backup an index may come twice,
        and another payer's old deposit must not pay a new invoice.
        """
        ...

    async def deposits(self, addresses: Sequence[str]) -> list[Deposit]:
        """Every output to these addresses, mempool included. One that vanished (reorg, double spend) is
        absent or `conflicted`; so an empty answer is no error, and each look replaces the one before."""
        ...

    def check_address(self, text: str) -> None:
        """Raises `InvalidRequest` unless text is an address of this chain and network."""
        ...

    def payment_uri(self, address: str, amount: int, label: str) -> str:
        """What a wallet scans."""
        ...


@runtime_checkable
class Checkable(Protocol):
    """A chain whose node can be asked what it is. Both methods may raise `ChainUnavailable`."""

    async def why_wrong(self) -> str | None:
        """Why nothing it says may be believed: another chain or network, or not synchronised."""
        ...

    async def why_unready(self) -> str | None:
        """Why no new address should be handed out: what we need is missing, or a look-up takes too long."""
        ...


class Spender(Protocol):
    """A hot wallet: the paying side, and the operator's refunds."""

    async def send(self, address: str, amount: int, *, spend: Deposit | None = None) -> str:
        """Broadcast a payment and return its txid. With `spend`, that very output is the (only) input, so
        that a reorg which takes the deposit takes its refund too; fee comes off what stays over."""
        ...

    async def balance(self) -> int:
        """What could be spent now, in atomic units."""
        ...


class Funds(Protocol):
    """What a spender of single outputs asks of a chain; Core-style and Esplora adapters have it."""

    code: str

    async def unspent(self, addresses: Sequence[str]) -> list[Deposit]:
        """Outputs to these addresses that no transaction has spent, mempool included on both sides."""
        ...

    async def broadcast(self, raw: bytes) -> str:
        """Hand a signed transaction to the network; its txid. Raises `Conflict` when the node refuses it; one
        that the network has already is no error, so the same bytes may be sent again after a timeout."""
        ...

    async def depth(self, txid: str) -> int | None:
        """How deep a transaction that spends from or pays to one of our addresses lies: 0 in the mempool,
        None where the network does not have it, or no longer."""
        ...

    async def fee_rate(self) -> int | None:
        """Atomic units for 1000 virtual bytes, as the node thinks right; None if it has no opinion."""
        ...
