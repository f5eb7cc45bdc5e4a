"""A sandbox is charged while it lives: the charge follows its record, in the transaction of every step.

    create ──hold──> provisioning ──ready: hold becomes a meter──> each state its rate ──destroying──> closed
                          └──failed: the hold is freed, nothing was charged

Sandboxes that pay nothing (the owner's, free profiles) cost no SQL statement here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from sandboxer.accounts import caps, records, storage
from sandboxer.accounts.authority import Authority, load_authority
from sandboxer.accounts.delegation import slots_left
from sandboxer.accounts.entitlements import Entitlement, Living, keeps_disk, would_be_free
from sandboxer.accounts.storage import STORAGE, StoragePolicy
from sandboxer.accounts.sums import spent_by
from sandboxer.backends.contract import Resources, Trust
from sandboxer.identity.keys import OWNER_ACCOUNT
from sandboxer.kernel.errors import Forbidden, InsufficientCredit, QuoteUnusable
from sandboxer.kernel.values import value_class
from sandboxer.money import quotes
from sandboxer.money.amounts import Rate, Sats, sats_for, shown_sats
from sandboxer.money.buckets import load_bucket, look_at_once, settle_account
from sandboxer.money.metering import (
    HOLDS,
    HoldPolicy,
    at_nothing,
    begin_charge,
    change_rate,
    close_meter,
    find_meter,
    hold_slice,
    open_holds,
    release,
)
from sandboxer.money.policy import Use
from sandboxer.money.pricing import FREE, Pricing, RateCard, Size, rate_card
from sandboxer.money.records import Bucket
from sandboxer.money.statements import account_view, actuals
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox, load_account
from sandboxer.sandboxes.terms import Terms, as_of, find_reached

ACTOR = "system:charging"
# The reason of a sandbox in grace that was frozen when the sats ran out: it pays the frozen rate.
DRY_WHILE_FROZEN = "dry_while_frozen"
# The states in which a sandbox occupies a slot.
OCCUPYING = frozenset(
    {State.REQUESTED, State.PROVISIONING, State.READY, State.ACTIVE, State.FROZEN, State.GRACE}
)
_RUNNING = frozenset({State.READY, State.ACTIVE, State.GRACE})
_STORED = frozenset({State.STOPPED, State.REAPED})
_OVER = frozenset({State.EXPIRED, State.DESTROYING, State.DESTROYED})


def due(sandbox: Sandbox) -> tuple[Use, Rate] | None:
    """Return what it pays for in its present state and the rate; None: nothing is metered. Pure."""
    use = _use(sandbox)
    if use is None:
        return None
    terms = sandbox.terms
    is_nothing = terms.keeps_free if use is Use.STORED else terms.is_entitled or terms.is_capped
    rate = stored_rate(sandbox) if use is Use.STORED else terms.card.rate(use)
    return use, 0 if is_nothing else rate


def stored_rate(sandbox: Sandbox) -> Rate:
    """Return what it costs while it is stopped: its disk, and what is kept of its memory. Pure."""
    return sandbox.terms.card.stored + sandbox.terms.memory_msats


def rate_now(sandbox: Sandbox) -> Rate:
    """Return its present rate in msats per second."""
    paid_for = due(sandbox)
    return 0 if paid_for is None else paid_for[1]


def is_frozen(sandbox: Sandbox) -> bool:
    """Return whether its processes are paused; its state may be `grace` then."""
    dry = sandbox.state is State.GRACE and sandbox.reason == DRY_WHILE_FROZEN
    return dry or sandbox.state is State.FROZEN


def size_of(resources: Resources) -> Size:
    return Size(
        vcpu_thousandths=round(resources.vcpus * 1000),
        memory_mb=resources.memory_mb,
        disk_mb=resources.disk_mb,
    )


def meter_id(sandbox_id: str) -> str:
    return f"meter:{sandbox_id}"


@value_class
class Charging:
    pricing: Pricing
    holds: HoldPolicy = HOLDS
    storage: StoragePolicy = STORAGE

    def is_free(self, account: str, profile: str) -> bool:
        return account == OWNER_ACCOUNT or profile in self.pricing.free_profiles

    def admit(self, conn: Connection, sandbox: Sandbox, *, now: datetime) -> Sandbox:
        """Return the record of a new sandbox with its terms.

        Raises Forbidden (a cap, no slot left), InsufficientCredit; for its quote NotFound, QuoteUnusable.
        """
        sandbox = self._quoted(conn, sandbox, now)
        if self.is_free(sandbox.account, sandbox.profile):
            return sandbox
        records.ensure(conn, sandbox.account, actor=ACTOR, now=now)
        # The bucket is locked first, so that two creates at once do not both get the last slot.
        load_bucket(conn, sandbox.account, lock=True)
        return replace(sandbox, terms=self._terms(conn, sandbox, now))

    def check_start(self, conn: Connection, sandbox: Sandbox, *, now: datetime) -> Terms:
        """Return the terms on which it may run, new or again. Nothing is held.

        Raises as `admit`, and InsufficientCredit for an empty bucket.
        """
        sandbox = self._quoted(conn, sandbox, now)
        if self.is_free(sandbox.account, sandbox.profile):
            return sandbox.terms
        records.ensure(conn, sandbox.account, actor=ACTOR, now=now)
        bucket = settle_account(conn, sandbox.account, now=now)
        terms = self._terms(conn, sandbox, now)
        least = 0 if terms.is_entitled else sats_for(terms.card.running, self.holds.least)
        available = _available_to(conn, sandbox, bucket)
        if available < least:
            raise InsufficientCredit(required=least, available=available, account=sandbox.account)
        return terms

    def rerouted(self, sandbox: Sandbox) -> Terms:
        """Return its terms where another backend makes it; what a quote or a tier promised stays.

        That the one before would have cost nothing is no promise.
        """
        terms = sandbox.terms
        if terms.quote_id is not None:
            return terms
        is_entitled = terms.is_entitled and is_in_tier(sandbox)
        return replace(terms, card=self._card(sandbox), is_entitled=is_entitled)

    def remembering(self, sandbox: Sandbox) -> Terms:
        """Return its terms with the price of what is kept of its memory: as much as disk costs now.

        The rate of its own disk is rounded up, and a small disk's is no measure of a large memory.
        """
        terms = sandbox.terms
        gb_msats = self.pricing.rates_of(sandbox.profile).stored_disk_gb_msats if terms.card.stored else 0
        return replace(terms, memory_msats=-(-gb_msats * terms.memory_mb // 1024))

    def resized(self, conn: Connection, sandbox: Sandbox, *, now: datetime) -> Terms:
        """Return the terms on which it goes on with these resources. Raises as `check_start`.

        They are at the present rates, because a quote was for the resources it had.
        """
        if sandbox.terms.is_free and self.is_free(sandbox.account, sandbox.profile):
            return sandbox.terms
        records.ensure(conn, sandbox.account, actor=ACTOR, now=now)
        bucket = settle_account(conn, sandbox.account, now=now)
        anew = self._terms(conn, replace(sandbox, terms=Terms()), now)
        terms = replace(anew, quote_id=sandbox.terms.quote_id, keeps_free=sandbox.terms.keeps_free)
        least = 0 if terms.is_entitled else sats_for(terms.card.running, self.holds.least)
        if bucket.available < least:
            raise InsufficientCredit(required=least, available=bucket.available, account=sandbox.account)
        return terms

    def kept_for(
        self, conn: Connection, sandbox: Sandbox, *, retention: timedelta, now: datetime
    ) -> timedelta:
        """Return how long its disk is kept when it does not run any more (`accounts/storage.py`)."""
        stored = stored_rate(replace(sandbox, terms=self.remembering(sandbox)))
        account = records.find(conn, sandbox.account)
        if not stored or account is None or self._tier_keeps(conn, account, sandbox, now):
            return retention
        view = account_view(conn, sandbox.account, now=now)
        return storage.kept_for(
            stored=stored,
            paid=max(0, spent_sats(conn, sandbox, now=now) - view.debt),
            available=view.available,
            retention=retention,
            policy=self.storage,
        )

    def _tier_keeps(
        self, conn: Connection, account: records.Account, sandbox: Sandbox, now: datetime
    ) -> bool:
        tier = account.tier_at(now)
        if tier is None:
            return False
        there = [s for s in load_account(conn, account.id, OCCUPYING | _STORED) if s.id != sandbox.id]
        held = sum(s.resources.disk_mb for s in there if s.state in _STORED or s.terms.is_entitled)
        return keeps_disk(tier, sandbox.resources.disk_mb, held_mb=held)

    def apply(
        self, conn: Connection, before: Sandbox | None, after: Sandbox, *, now: datetime, at: datetime | None
    ) -> Mapping[str, object]:
        """Change the charge with the record. The last event of a sandbox gets what it cost in all."""
        self._follow_quote(conn, before, after, now)
        if after.terms.is_free and (before is None or before.terms.is_free):
            # One that paid until now has a hold or a meter, which ends with this step.
            return {}
        if before is None or after.state is State.PROVISIONING:
            self._hold(conn, before, after, now)
        if after.state is not State.PROVISIONING:
            self._meter(conn, before, after, now, at)
        if after.state is State.DESTROYED:
            return {"sats": spent_sats(conn, after, now=now)}
        return {}

    def to_take_up(self, conn: Connection, sandboxes: Sequence[Sandbox]) -> list[Sandbox]:
        """Return those that have a price and are not metered, since nothing was charged when they last
        changed: what was before, and disks of what began for nothing. What runs for nothing pays when it gets
        more.
        """
        waiting = at_nothing(conn)
        return [
            one
            for one in sandboxes
            if _is_waiting(one, waiting.get(meter_id(one.id)))
            or (one.terms.is_free and one.state is State.STOPPED and self._card(one).stored)
        ]

    def taken_up(self, sandbox: Sandbox) -> Terms:
        """Return the terms on which it goes on: those that it had, or those of now if it had none."""
        return replace(sandbox.terms, card=self._card(sandbox)) if sandbox.terms.is_free else sandbox.terms

    def take_up(self, conn: Connection, sandbox: Sandbox, *, now: datetime) -> None:
        """Let its meter, if it has one, go on at its rate."""
        wanted = due(replace(sandbox, terms=self.taken_up(sandbox)))
        if wanted is not None and find_meter(conn, meter_id(sandbox.id)) is not None:
            change_rate(conn, meter_id(sandbox.id), use=wanted[0], rate=wanted[1], now=now)

    def _card(self, sandbox: Sandbox) -> RateCard:
        if self.is_free(sandbox.account, sandbox.profile):
            return FREE
        return rate_card(sandbox.profile, size_of(sandbox.resources), self.pricing, sandbox.route.basis)

    def promised(self, conn: Connection, sandbox: Sandbox, quote_id: str, *, now: datetime) -> Terms:
        """Return the terms of a sandbox that goes on at a quote's rates. Raises NotFound, QuoteUnusable."""
        given = quotes.find(conn, quote_id, sandbox.account)
        quotes.check(given, profile=sandbox.profile, size=size_of(sandbox.resources), now=now)
        self._refuse_dearer(sandbox, given)
        is_free = self.is_free(sandbox.account, sandbox.profile)
        return replace(sandbox.terms, card=FREE if is_free else given.quote.card, quote_id=quote_id)

    def _refuse_dearer(self, sandbox: Sandbox, given: quotes.GivenQuote) -> None:
        """Raise QuoteUnusable where it costs more than an ordinary one: that was never in the quote."""
        plain = rate_card(sandbox.profile, size_of(sandbox.resources), self.pricing)
        if self._card(sandbox).running > max(plain.running, given.quote.card.running):
            raise QuoteUnusable(
                id=given.id,
                why="what a provider or a GPU costs is no part of it",
                reason="quote_mismatch",
                quote_id=given.id,
            )

    def _quoted(self, conn: Connection, sandbox: Sandbox, now: datetime) -> Sandbox:
        """Fill in the rates of a new sandbox that names a quote."""
        terms = sandbox.terms
        if terms.quote_id is None or not terms.is_free or sandbox.ready_at is not None:
            return sandbox
        return replace(sandbox, terms=self.promised(conn, sandbox, terms.quote_id, now=now))

    def _follow_quote(self, conn: Connection, before: Sandbox | None, after: Sandbox, now: datetime) -> None:
        """Mark a quote as used with the record that names it, and free or retire it when that ends."""
        quote_id = after.terms.quote_id
        former = None if before is None else before.terms.quote_id
        if former is not None and former != quote_id:
            quotes.let_go(conn, after.id, former)
        if quote_id is None:
            return
        if before is None or before.terms.quote_id != quote_id:
            given, size = quotes.find(conn, quote_id, after.account), size_of(after.resources)
            quotes.take(conn, given, after.id, profile=after.profile, size=size, now=now)
        elif after.state is State.FAILED and after.ready_at is None:
            quotes.free(conn, after.id, quote_id)
        elif after.state is State.DESTROYED:
            quotes.let_go(conn, after.id, quote_id)

    def _terms(self, conn: Connection, sandbox: Sandbox, now: datetime) -> Terms:
        authority = load_authority(conn, sandbox.account)
        entitlement, others = entitlement_of(authority), list[Sandbox]()
        if authority.slots is not None or entitlement is not None:
            # Read only if slots or a tier count them: an account may have thousands.
            others = [s for s in load_account(conn, sandbox.account, OCCUPYING) if s.id != sandbox.id]
        check_slots(conn, authority, len(others))
        size = size_of(sandbox.resources)
        card = sandbox.terms.card
        if sandbox.terms.is_free:
            card = rate_card(sandbox.profile, size, self.pricing, sandbox.route.basis)
        promised = Terms(
            card=card, quote_id=sandbox.terms.quote_id, pays_egress=self._pays_egress(conn, sandbox)
        )
        in_tier = entitlement is not None and is_in_tier(sandbox)
        if in_tier and would_be_free(living_of(others), size, entitlement, now=now):
            return replace(promised, is_entitled=True)
        if (bounds := authority.caps) != caps.NO_CAPS:
            key = sandbox.created_by
            spent = spent_by(conn, sandbox.account, bounds, key=key, now=now, sandbox=sandbox.id)
            caps.check(bounds, spent, wanted=sats_for(card.running, self.holds.least))
        return promised

    def _pays_egress(self, conn: Connection, sandbox: Sandbox) -> bool:
        if sandbox.trust is not Trust.SEMI:
            return False
        quote_id = sandbox.terms.quote_id
        if quote_id is None:
            return self.pricing.rates_of(sandbox.profile).egress_gb_msats > 0
        return quotes.find(conn, quote_id, sandbox.account).quote.egress_gb_msats > 0

    def _hold(self, conn: Connection, before: Sandbox | None, after: Sandbox, now: datetime) -> None:
        if before is not None and before.state is State.PROVISIONING:
            if before.terms.card == after.terms.card:
                return
            # Another backend makes it, at another price: one hold takes the place of the other.
            if (held := self._open_hold(conn, after)) is not None:
                release(conn, after.account, held, reason="rerouted", now=now)
            before = None
        if before is not None:
            self._meter(conn, before, after, now, None)
        rate = 0 if after.terms.is_entitled else after.terms.card.running
        id = f"{_hold_prefix(after)}{after.version}"
        hold_slice(
            conn,
            after.account,
            id=id,
            rate=rate,
            reason=f"create {after.id}",
            now=now,
            holds=self.holds,
        )

    def _meter(
        self, conn: Connection, before: Sandbox | None, after: Sandbox, now: datetime, at: datetime | None
    ) -> None:
        if before is not None and _charges_alike(before, after):
            return
        hold = self._open_hold(conn, after) if before is None or before.state is State.PROVISIONING else None
        meter = find_meter(conn, meter_id(after.id))
        wanted = due(after)
        if meter is None:
            if wanted is not None:
                # One that ran before without a meter, when nothing was charged, pays from now on.
                since = after.ready_at if before is None or before.ready_at is None else now
                self._begin(conn, after, hold, wanted, now, since)
                _look_for_caps(conn, after, now)
            elif hold is not None:
                release(conn, after.account, hold, reason=after.reason, now=now)
            return
        if hold is not None:
            release(conn, after.account, hold, reason=after.reason, now=now)
        if wanted is None or wanted[1] <= meter.rate:
            at = _not_past_a_cap(conn, after, now, at)
        if after.state in _OVER:
            close_meter(conn, meter.id, now=now, at=at)
            return
        use, rate = wanted or (Use.NOTHING, 0)
        change_rate(conn, meter.id, use=use, rate=rate, now=now, at=at, step=after.version)
        if rate > meter.rate:
            _look_for_caps(conn, after, now)

    def _begin(
        self,
        conn: Connection,
        sandbox: Sandbox,
        hold: str | None,
        wanted: tuple[Use, Rate],
        now: datetime,
        since: datetime | None,
    ) -> None:
        if hold is None:
            # It began when nothing was charged, and its account may never have paid.
            records.ensure(conn, sandbox.account, actor=ACTOR, now=now)
        begin_charge(
            conn,
            sandbox.account,
            hold_id=hold,
            meter_id=meter_id(sandbox.id),
            subject=sandbox.id,
            use=wanted[0],
            rate=wanted[1],
            now=now,
            ready_at=since,
            step=sandbox.version,
            key=sandbox.created_by,
        )

    def _open_hold(self, conn: Connection, sandbox: Sandbox) -> str | None:
        prefix = _hold_prefix(sandbox)
        return next((h.id for h in open_holds(conn, sandbox.account) if h.id.startswith(prefix)), None)


def check_slots(conn: Connection, authority: Authority, others: int) -> None:
    """Raise Forbidden if a delegated key has no slot for one more beside so many others."""
    if authority.slots is not None and slots_left(conn, authority, others) == 0:
        raise Forbidden(
            why="all sandboxes that this key may have at once are in use",
            reason="slots",
            hint="Delete or stop one, or ask for more slots where the key was delegated.",
        )


def _available_to(conn: Connection, sandbox: Sandbox, bucket: Bucket) -> Sats:
    """Return what it may run on: the reserve for its own present meter counts as available to itself."""
    own = find_meter(conn, meter_id(sandbox.id))
    if own is None or bucket.debt:
        return bucket.available
    others = max(0, bucket.flow.rate - own.rate)
    return bucket.spendable - min(bucket.spendable, sats_for(others, bucket.reserve))


def _charges_alike(before: Sandbox, after: Sandbox) -> bool:
    is_over_in_both = (before.state in _OVER) == (after.state in _OVER)
    return before.state is not State.PROVISIONING and is_over_in_both and due(before) == due(after)


def _is_waiting(sandbox: Sandbox, use: Use | None) -> bool:
    """Return whether its meter, which runs at nothing for `use`, is to go on. None: no meter does."""
    wanted = due(sandbox)
    return use is not None and wanted is not None and (wanted[1] > 0 or use is Use.NOTHING)


def is_in_tier(sandbox: Sandbox) -> bool:
    """Return whether a tier may pay for it: no tier has GPUs in it, or what a provider charges."""
    basis = sandbox.route.basis
    return not (basis.infrastructure or basis.gpus)


def living_of(sandboxes: Iterable[Sandbox]) -> list[Living]:
    """Return those that may be in slots of a tier."""
    return [
        Living(
            id=one.id,
            since=one.created_at,
            size=size_of(one.resources),
            is_free=one.terms.is_entitled,
        )
        for one in sandboxes
        if is_in_tier(one)
    ]


def entitlement_of(authority: Authority) -> Entitlement | None:
    """Return the account's own entitlement; a delegated key has a budget and no tier."""
    account = authority.account
    if account.tier is None or account.entitled_until is None:
        return None
    return Entitlement(tier=account.tier, until=account.entitled_until)


def _use(sandbox: Sandbox) -> Use | None:
    if is_frozen(sandbox):
        return Use.FROZEN
    if sandbox.state in _RUNNING:
        return Use.RUNNING
    return Use.STORED if sandbox.state in _STORED else None


def _hold_prefix(sandbox: Sandbox) -> str:
    return f"hold:{sandbox.id}:"


def _look_for_caps(conn: Connection, sandbox: Sandbox, now: datetime) -> None:
    """Note that a cap may be reached, because the sandbox pays more from now on.

    The note survives a server that dies before its loop has computed when that will be.
    """
    if load_authority(conn, sandbox.account).caps != caps.NO_CAPS:
        look_at_once(conn, sandbox.account, now=now)


def _not_past_a_cap(
    conn: Connection, sandbox: Sandbox, now: datetime, at: datetime | None
) -> datetime | None:
    """Return when its present rate ends: at `at`, or when a cap was reached before and nobody noticed."""
    authority = load_authority(conn, sandbox.account)
    if authority.caps == caps.NO_CAPS:
        return at
    bucket = load_bucket(conn, sandbox.account)
    reached = find_reached(conn, authority, [sandbox], now, first=as_of(bucket, now)).get(sandbox.id)
    return at if reached is None else min(at or now, reached.at)


def spent_sats(conn: Connection, sandbox: Sandbox, *, now: datetime) -> Sats:
    """Return what it has cost in all, rounded up for display; the account carries the exact fraction."""
    nsats = sum(line.nsats for line in actuals(conn, sandbox.account, sandbox.id, now=now))
    card = sandbox.terms.card
    return shown_sats(nsats, grain=max(card.running, card.frozen, card.stored))
