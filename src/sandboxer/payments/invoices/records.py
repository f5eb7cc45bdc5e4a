"""Invoices, the outputs that reached their addresses, and refunds, as values; and the operator's settings.

Settings are read strictly: an unknown name is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.invoices.lifecycle import SETTLED, State

# Room for `deposit:` before and `:over:12` behind within a transfer's id.
_LONGEST_NAME = 160
_DURATIONS = frozenset({"expires_after", "confirm_within", "watch_for"})


class Kind(StrEnum):
    """What is bought. Other packages name their own; see `goods.py`."""

    TIER = "tier"
    SATS = "sats"


@dataclass(frozen=True, slots=True, kw_only=True)
class Buys:
    kind: str
    tier: int | None = None
    months: int | None = None
    cents: int | None = None
    # For goods of other packages: which card, which order.
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """An exact price: so many smallest units of the asset for so many sats, at locked rates."""

    asset: str
    atomic: int
    sats: int
    usd: Decimal | None = None
    btc_usd: Decimal | None = None
    rate_sources: tuple[str, ...] = ()

    def sats_for(self, atomic: int) -> int:
        """Rounded down; exactly `sats` for exactly `atomic`."""
        return atomic * self.sats // self.atomic


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoice:
    # 130 random bits: who knows it may see the invoice.
    id: str
    buys: Buys
    price: Price
    state: State
    address: str
    index: int
    # Whom it is for; chosen beforehand for a new account, which is made when there is money for it.
    account: str
    is_new_account: bool
    # SHA-256 of what the payer was given to fetch the key's secret with; None: it gets no key.
    claim_hash: str | None
    public_key: str | None
    refund_address: str | None
    confirmations: int
    created_at: datetime
    expires_at: datetime
    # A payment seen in time must be deep enough by then, or its locked rate would be a free option.
    confirm_by: datetime
    # How often it was delivered; odd and even alternate with `is_delivered`.
    deliveries: int = 0
    is_delivered: bool = False
    # What delivering changed, so that it can be taken back.
    granted: Mapping[str, Any] = field(default_factory=dict)
    # Until when somebody looks at its address; None: nobody any more.
    watch_until: datetime | None
    updated_at: datetime
    # How many steps its history has.
    steps: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is expected. An invoice with only dust is final once its time is over."""
        if self.state is State.DUST:
            return self.updated_at >= self.expires_at
        return self.state in SETTLED


class Settled(StrEnum):
    """What became of an output."""

    OPEN = "open"
    CREDITED = "credited"
    REFUND = "refund"
    # Too little to give back to somebody who has no account.
    KEPT = "kept"


class RefundState(StrEnum):
    QUEUED = "queued"
    # The hot wallet has signed it and written it down; nobody knows yet whether it is out.
    SENDING = "sending"
    SENT = "sent"
    # Of what the hot wallet sent, we see for ourselves how deep it lies.
    CONFIRMED = "confirmed"
    # The chain took back the output it spends, and so the refund.
    WITHDRAWN = "withdrawn"


# The money is on its way, or there.
SENT_BACK = frozenset({RefundState.SENT, RefundState.CONFIRMED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    id: str
    invoice: str
    chain: str
    # The very output it spends, so that a reorg which takes the one takes the other.
    txid: str
    output: str
    received: int
    # What goes back and what is kept of it; the network's fee comes off what is kept.
    amount: int
    kept: int
    address: str
    state: RefundState
    reason: str
    sent_txid: str | None
    created_at: datetime
    updated_at: datetime
    # What the hot wallet signed for it: there is never a second one.
    prepared_txid: str | None = None
    prepared: bytes | None = field(default=None, repr=False)
    fee: int | None = None
    # Why it is not on its way.
    held: str | None = None

    @property
    def is_bound(self) -> bool:
        """Whether it certainly spends the very output it returns, because the hot wallet made it."""
        return self.prepared_txid is not None and self.sent_txid in (None, self.prepared_txid)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoicePolicy:
    """What an operator decides about invoices."""

    expires_after: timedelta = timedelta(hours=1)
    # After the expiry, until a payment that was seen in time must be deep enough.
    confirm_within: timedelta = timedelta(hours=24)
    # How long an address is looked at for late payments.
    watch_for: timedelta = timedelta(days=7)
    # Confirmations needed, where they differ from the asset's own.
    confirmations: Mapping[str, int] = field(default_factory=dict)
    # A delivered output this deep is never taken back by a reorg.
    reorg_depth: int = 100
    restocking_percent: int = 9
    # Below so many sats nothing is sent back, and an account is not opened for it.
    dust_sats: int = 100
    open_per_address: int = 20
    # From one IPv6 /48 or IPv4 /24: who has such a network whole is one party.
    open_per_network: int = 100
    open_in_all: int = 10_000
    # Of these, so many for who asks without an account that has funds; the rest waits for those who have.
    strangers_percent: int = 80
    min_sats: int = 1000
    max_sats: int = 1_000_000_000
    poll_s: float = 10.0

    def __post_init__(self) -> None:
        percents = (self.restocking_percent, self.strangers_percent)
        if not all(0 <= percent <= 100 for percent in percents) or self.poll_s <= 0:
            raise InvalidRequest(field="invoices", why="percent from 0 to 100, polling above zero")
        if any(number < 1 for number in self.confirmations.values()):
            raise InvalidRequest(field="invoice_confirmations", why="at least 1")

    @property
    def open_for_strangers(self) -> int:
        return -(-self.open_in_all * self.strangers_percent // 100)


POLICY = InvoicePolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One output to an invoice's address, as last seen, and what became of it."""

    chain: str
    txid: str
    output: str
    invoice: str
    amount: int
    depth: int
    block: str | None
    height: int | None
    # The node knows it, and another transaction has not taken its inputs; the sender did not lock it.
    is_there: bool = True
    is_unlocked: bool = True
    # In how many looks, one after another, it was missing.
    missed: int = 0
    # First seen while the locked price still held.
    is_in_time: bool
    first_seen_at: datetime
    settled: Settled = Settled.OPEN
    # What its credit gave: to what was bought, and to the bucket.
    sale_sats: int = 0
    bucket_sats: int = 0
    # Whether its credit counts towards what was bought; else it became sats beside it.
    is_for_price: bool = True
    # How often it was credited and taken back: part of the next transfer's id.
    round: int = 0

    @property
    def id(self) -> str:
        return f"{self.txid}:{self.output}"

    @property
    def name(self) -> str:
        """Unique among all chains, and short enough for the ids of transfers."""
        name = f"{self.chain}:{self.id}"
        if len(name) <= _LONGEST_NAME:
            return name
        return f"{self.chain}:{self.txid}:{hashlib.sha256(self.output.encode()).hexdigest()[:32]}"

    @property
    def is_money(self) -> bool:
        return self.is_there and self.is_unlocked

    def is_firm(self, needed: int) -> bool:
        return self.is_money and self.depth >= needed

    @property
    def is_lost(self) -> bool:
        """Whether it is no longer in the best chain. Missing in a single look does not count yet."""
        if self.missed:
            return self.missed > 1
        return not self.is_money or self.depth == 0


def read_policy(given: Mapping[str, Any], *, confirmations: Mapping[str, int]) -> InvoicePolicy:
    """Terms that are not named keep their default; `confirmations` are said where the chains are."""
    known = {field.name for field in fields(InvoicePolicy)} - {"confirmations"}
    values: dict[str, Any] = {"confirmations": confirmations}
    for name, value in given.items():
        if name not in known:
            raise InvalidRequest(field=f"invoices.{name}", why=f"known are {', '.join(sorted(known))}")
        if name in _DURATIONS:
            value = parse_duration(str(value), field=f"invoices.{name}")
        elif name == "poll_s":
            value = float(_number(name, value))
        else:
            value = _whole(name, value)
        values[name] = value
    return InvoicePolicy(**values)


def _number(name: str, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(field=f"invoices.{name}", why="it must be a number")
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidRequest(field=f"invoices.{name}", why="it must be a whole number, not below zero")
    return value
