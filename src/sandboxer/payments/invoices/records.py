"""Invoices, the outputs that reached their addresses, and refunds, as values; and the operator's settings.

Settings are read strictly: an unknown name is refused.

The lifecycle of an invoice is one table. Every change of state goes through `next_state`.

A state says what the chain shows now and what that means for the payer. Looks may be far apart (a node was
down, we were): from an open state every other look is possible. What was delivered is only ever taken back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import field, fields
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.store.steps import Lifecycle


class State(StrEnum):
    # Nothing was seen; or a payment that can no longer confirm.
    AWAITING = "awaiting"
    DOUBLE_SPENT = "double_spent"
    # Too little to be worth a transaction; too little; enough, in the mempool; enough, in blocks.
    DUST = "dust"
    PARTIAL = "partial"
    SEEN = "seen"
    CONFIRMING = "confirming"
    # Delivered; more than was asked for came.
    PAID = "paid"
    OVER = "over"
    # The chain took back what had been delivered for.
    REORGED = "reorged"
    # The time is over and nothing came, too little came, or it came too late. The last two wait to be deep.
    EXPIRED = "expired"
    UNDERPAID = "underpaid"
    LATE = "late"
    # Deep enough, but nobody knows what it is worth: it waits in its own unit.
    AWAITING_RATE = "awaiting_rate"
    # What was not enough, or late, became sats; or goes back, or has gone back.
    CREDITED = "credited"
    REFUND_DUE = "refund_due"
    REFUNDED = "refunded"


class Signal(StrEnum):
    """The result of one look at the chain."""

    NOTHING = "nothing"
    VANISHED = "vanished"
    SPECK = "speck"
    SHORT = "short"
    IN_POOL = "in_pool"
    IN_BLOCK = "in_block"
    ENOUGH = "enough"
    MORE = "more"
    TAKEN_BACK = "taken_back"
    TIME_OVER = "time_over"
    TOO_LITTLE = "too_little"
    TOO_LATE = "too_late"
    NO_RATE = "no_rate"
    TURNED_TO_SATS = "turned_to_sats"
    TO_SEND_BACK = "to_send_back"
    SENT_BACK = "sent_back"


S, E = State, Signal
OPEN = frozenset({S.AWAITING, S.DOUBLE_SPENT, S.DUST, S.PARTIAL, S.SEEN, S.CONFIRMING})
DELIVERED = frozenset({S.PAID, S.OVER})
# States that are final for the payer, as far as anybody can know.
SETTLED = frozenset({S.PAID, S.OVER, S.EXPIRED, S.CREDITED, S.REFUND_DUE, S.REFUNDED})
_MEANS: Mapping[Signal, State] = {
    E.NOTHING: S.AWAITING,
    E.VANISHED: S.DOUBLE_SPENT,
    E.SPECK: S.DUST,
    E.SHORT: S.PARTIAL,
    E.IN_POOL: S.SEEN,
    E.IN_BLOCK: S.CONFIRMING,
    E.ENOUGH: S.PAID,
    E.MORE: S.OVER,
    E.TAKEN_BACK: S.REORGED,
    E.TIME_OVER: S.EXPIRED,
    E.TOO_LITTLE: S.UNDERPAID,
    E.TOO_LATE: S.LATE,
    E.NO_RATE: S.AWAITING_RATE,
    E.TURNED_TO_SATS: S.CREDITED,
    E.TO_SEND_BACK: S.REFUND_DUE,
    E.SENT_BACK: S.REFUNDED,
}
UNPAID = frozenset(
    {S.EXPIRED, S.UNDERPAID, S.LATE, S.AWAITING_RATE, S.CREDITED, S.REFUND_DUE, S.REFUNDED, S.DUST}
)
_BEFORE: Mapping[Signal, frozenset[State]] = {
    E.NOTHING: OPEN,
    E.VANISHED: OPEN,
    E.SPECK: OPEN | UNPAID,
    E.SHORT: OPEN,
    # Also after the time: a payment that had vanished came back, or a dearer one took its place.
    E.IN_POOL: OPEN | UNPAID,
    E.IN_BLOCK: OPEN | UNPAID,
    E.ENOUGH: OPEN | UNPAID | {S.REORGED, S.OVER},
    E.MORE: OPEN | UNPAID | {S.REORGED, S.PAID},
    E.TAKEN_BACK: DELIVERED,
    E.TIME_OVER: OPEN | UNPAID | {S.REORGED},
    E.TOO_LITTLE: OPEN | UNPAID | {S.REORGED},
    E.TOO_LATE: OPEN | UNPAID | {S.REORGED},
    E.NO_RATE: OPEN | UNPAID | {S.REORGED},
    E.TURNED_TO_SATS: OPEN | UNPAID | {S.REORGED},
    E.TO_SEND_BACK: OPEN | UNPAID | {S.REORGED},
    E.SENT_BACK: OPEN | UNPAID | {S.REORGED},
}
TRANSITIONS: Mapping[tuple[State, Signal], State] = {
    (state, signal): _MEANS[signal]
    for signal, before in _BEFORE.items()
    for state in State
    if state in before and state is not _MEANS[signal]
}
_LIFECYCLE = Lifecycle(TRANSITIONS)


def next_state(state: State, signal: Signal) -> State:
    """Return the next state. A look without news changes nothing; a step not in the table is refused."""
    return state if _MEANS[signal] is state else _LIFECYCLE.next_state(state, signal)


# Room for `deposit:` before and `:over:12` behind within a transfer's id.
_LONGEST_NAME = 160


class Kind(StrEnum):
    """What is bought. Other packages name their own; see `goods.py`."""

    TIER = "tier"
    SATS = "sats"


@value_class
class Buys:
    kind: str
    tier: int | None = None
    months: int | None = None
    cents: int | None = None
    # For goods of other packages: which card, which order.
    reference: str | None = None


@value_class
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


@value_class
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


@value_class
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


@value_class
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


@value_class
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
    named = read_terms(InvoicePolicy, given, "invoices", besides=("confirmations",))
    return InvoicePolicy(confirmations=confirmations, **named)


def read_terms(
    policy: type[Any], given: Mapping[str, Any], where: str, *, besides: Collection[str] = ()
) -> dict[str, Any]:
    """Read the fields of a policy as an operator writes them; the type of its default says what each is."""
    defaults = {one.name: one.default for one in fields(policy) if one.name not in besides}
    if unknown := [name for name in given if name not in defaults]:
        raise InvalidRequest(field=f"{where}.{unknown[0]}", why=f"known are {', '.join(sorted(defaults))}")
    return {name: _term(defaults[name], value, f"{where}.{name}") for name, value in given.items()}


def _term(default: object, value: Any, field: str) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match default:
        case timedelta():
            return parse_duration(str(value), field=field)
        case bool():
            is_right, what = isinstance(value, bool), "true or false"
        case float():
            is_right, what = is_number, "a number"
        case _:
            is_right, what = type(value) is int and value >= 0, "a whole number, not below zero"
    if not is_right:
        raise InvalidRequest(field=field, why=f"it must be {what}")
    return float(value) if isinstance(default, float) else value
