"""What the checkout knows of a chain: a `Way` says what is taken there, who checks and settles it, how its
nonce is read and how its fate is looked up. Chains register theirs; nothing here names one.

What a chain's opener is given to make its ways.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import httpx

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.assets import Asset
from sandboxer.payments.rails import Check, Standings
from sandboxer.payments.records import Payment
from sandboxer.payments.x402.config import NetworkSettings

if TYPE_CHECKING:
    from x402.schemas import PaymentPayload, PaymentRequirements, SettleResponse, VerifyResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """An asset that is taken: `id` is its name on the wire (a contract, or `STX`)."""

    asset: Asset
    id: str
    # What the scheme's client needs to sign, such as an EIP-712 domain.
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """What a presented payment says of itself, before anybody has checked it."""

    # Canonical: the same wallet never has two spellings.
    payer: str
    nonce: str
    amount: int
    valid_until: datetime | None


class Fate(StrEnum):
    # Not on the chain, and it still can be.
    UNSEEN = "unseen"
    # On its way; nothing more is known.
    SEEN = "seen"
    CONFIRMED = "confirmed"
    # It can never be: spent by something else, expired, aborted.
    FAILED = "failed"
    REPLACED = "replaced"
    FORGOTTEN = "forgotten"
    # Whoever was asked cannot tell: it is behind, has forgotten, or contradicts itself.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    fate: Fate
    txid: str | None = None
    # Hash and height of the block it is in.
    block: str | None = None
    height: int | None = None
    confirmations: int = 0
    # The chain's height when it was looked at; None: nobody looked at the chain.
    head: int | None = None
    # Whether the block in which it was once confirmed is still the chain's; None: that was not looked up.
    is_block_there: bool | None = None
    # Something else has spent its nonce for good.
    is_spent_otherwise: bool = False
    # A stable word, such as a terminal reason of the relay.
    reason: str = ""


class Facilitator(Protocol):
    """Checks and settles; the package's own classes have this shape. May raise anything, may never answer."""

    async def verify(self, payload: PaymentPayload, requirements: PaymentRequirements) -> VerifyResponse: ...

    async def settle(self, payload: PaymentPayload, requirements: PaymentRequirements) -> SettleResponse: ...


class Reader(Protocol):
    def read(self, payload: PaymentPayload) -> Authorization:
        """Raises InvalidRequest for what is no payment of this kind."""

    def is_signed(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        """Whether the payer's own signature is under it, without asking a chain."""

    def is_of_key(self, payload: PaymentPayload, requirements: PaymentRequirements) -> bool:
        """Whether the payer is a key, the same on every chain, and not a contract of this one."""


class Watcher(Protocol):
    async def look(self, payment: Payment) -> Sighting:
        """What the chain says of it now. Raises ChainUnavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    # CAIP-2.
    network: str
    scheme: str
    pay_to: str
    accepts: tuple[Accepted, ...]
    facilitator: Facilitator = field(repr=False)
    reader: Reader = field(repr=False)
    watcher: Watcher = field(repr=False)
    # Asks a second node, where the operator named one: nothing is taken back unless both say so.
    witness: Watcher | None = field(repr=False, default=None)
    # Whether its network is what the settings say.
    check: Check | None = field(repr=False, default=None)
    # How deep a transaction must be to be final.
    confirmations: int = 1
    # For how many blocks a payment that was final must be missing before it is taken back.
    missing_blocks: int = 12
    # Whether a successful settle means that it is in a block, or only that it was broadcast.
    settles_in_block: bool = False
    # Whether less than was signed may be settled.
    settles_less: bool = False
    # For how long a payer's signature should be good.
    timeout_s: int = 300
    # What the scheme wants in every requirement beside the asset's own.
    extra: Mapping[str, Any] = field(default_factory=dict)
    # Names of the network in version 1 of the protocol.
    v1_names: tuple[str, ...] = ()

    def accepted(self, asset_id: str) -> Accepted | None:
        return next((one for one in self.accepts if one.id.lower() == asset_id.lower()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    clock: Clock
    # For nodes, facilitators and relays.
    client: httpx.AsyncClient = field(repr=False)
    # The operator's key that pays for gas.
    signer_key: str | None = field(repr=False, default=None)
    settle_timeout: timedelta = timedelta(seconds=30)


# By CAIP-2 namespace: `eip155`, `stacks`.
Opener = Callable[[NetworkSettings, Opening], Awaitable[list[Way]]]


class Ways(Standings):
    """The registered ways, in the order in which they are offered; networks can be off."""

    def __init__(self) -> None:
        super().__init__()
        self._ways: dict[tuple[str, str], Way] = {}

    def register(self, way: Way) -> None:
        if (way.network, way.scheme) in self._ways:
            raise InvalidRequest(field="x402", why=f"{way.scheme} on {way.network} is given twice")
        self._ways[way.network, way.scheme] = way

    def find(self, network: str, scheme: str) -> Way | None:
        return self._ways.get((network, scheme))

    @property
    def open_ones(self) -> list[Way]:
        return [way for way in self if self.why_off(way.network) is None]

    def of_v1(self, name: str, scheme: str) -> Way | None:
        return next((w for w in self if w.scheme == scheme and name in (w.network, *w.v1_names)), None)

    def __iter__(self) -> Iterator[Way]:
        return iter(self._ways.values())

    def __len__(self) -> int:
        return len(self._ways)
