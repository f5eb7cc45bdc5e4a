"""A code is redeemed for a tier or for sats: at once, or after somebody approved.

The answer does not tell a code that never existed from one of a card that ended, and the number of tries is
bounded for everybody together (`codes.py`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from dataclasses import field, replace
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection

from sandboxer.accounts import records as accounts
from sandboxer.accounts.authority import Act, demand_may
from sandboxer.identity.key_life import Claim
from sandboxer.kernel.errors import (
    Broken,
    Conflict,
    Forbidden,
    IdempotencyConflict,
    InvalidRequest,
    NotFound,
    SandboxerError,
    TooManyRequests,
)
from sandboxer.kernel.values import new_id, value_class
from sandboxer.money.pricing import tier_price
from sandboxer.payments.credits import account_to_pay
from sandboxer.payments.gift_cards import ledger, repository
from sandboxer.payments.gift_cards.approval import REDEEM_AGAIN, Asking
from sandboxer.payments.gift_cards.codes import LOOKUP_INFO, Attempts, Origin, Work, lookup_of
from sandboxer.payments.gift_cards.ledger import note_empty
from sandboxer.payments.gift_cards.records import (
    Card,
    Redemption,
    RedemptionSignal,
    RedemptionState,
)
from sandboxer.payments.gift_cards.use_cases import GiftCardDependencies
from sandboxer.payments.goods import entitled_until
from sandboxer.payments.invoices.records import Kind
from sandboxer.payments.rates import Rate

T = TypeVar("T")
CLAIM_INFO = "gift-card-claim-v1"
DAY_S = 24 * 3600
_STAYS = "Deny it, or leave it: the amount stays on the card, to be redeemed for another account."


@value_class
class Ask:
    """Tier and months, or cents to be turned into sats (None: all that is left)."""

    code: str = field(repr=False)
    request_id: str
    tier: int | None = None
    months: int | None = None
    cents: int | None = None
    # By its public id; None: the caller's own, or a new one.
    account: str | None = None
    caller: str | None = None

    @property
    def fingerprint(self) -> str:
        said = (self.tier, self.months, self.cents, self.account, self.caller)
        return hashlib.sha256(repr(said).encode()).hexdigest()


@value_class
class Redeemed:
    redemption: Redemption
    # What may still be redeemed of the card.
    left: int
    # The public id of who got it, once it was granted.
    account: str | None
    # With it the secret of a new account's key is fetched, once. Only for who has the code.
    claim: Claim | None = None


class Redeeming:
    def __init__(self, deps: GiftCardDependencies, asking: Asking, attempts: Attempts) -> None:
        self.attempts = attempts
        self._deps = deps
        self._asking = asking
        self._pepper = deps.seal.derive(LOOKUP_INFO)
        self._claim_key = deps.seal.derive(CLAIM_INFO)

    async def balance(
        self, code: str, work: Work | None = None, origin: Origin | None = None
    ) -> tuple[Card, int]:
        """Return the card of a code and what may be redeemed of it. Raises NotFound, WorkNeeded."""
        lookup = lookup_of(code, self._pepper)

        def find(conn: Connection) -> tuple[Card, int] | None:
            card = repository.find_live(conn, lookup)
            return None if card is None else (card, ledger.left_on(conn, card).available)

        return await self._attempt(find, work, origin, is_write=False)

    async def redeem(self, ask: Ask, work: Work | None = None, origin: Origin | None = None) -> Redeemed:
        """Redeem a code. The same request id redeems once and gives the same answer again.

        Raises NotFound (no card with something left, no account), Conflict (too little left), NoRate,
        WorkNeeded, TooManyRequests, IdempotencyConflict. Whatever it raises, nothing is gone from the card.
        """
        lookup = lookup_of(ask.code, self._pepper)
        price = self._price(ask)
        btc = await self._deps.rates.usd("BTC") if price is None else None
        claim = self._claim(lookup, ask.request_id)
        now = self._deps.clock.now()

        def redeem(conn: Connection) -> Redeemed | None:
            if (known := repository.find_asked(conn, lookup, ask.request_id)) is not None:
                return self._again(conn, ask, known, claim)
            to = account_to_pay(conn, ask.account, now=now).id if ask.account is not None else ask.caller
            if to is not None:
                demand_may(conn, to, Act.FUND, now=now)
            if (card := repository.find_live(conn, lookup, lock=True)) is None:
                # The one before us in the queue for the card's lock may have been our own first try.
                known = repository.find_asked(conn, lookup, ask.request_id)
                return None if known is None else self._again(conn, ask, known, claim)
            asked = self._asked(conn, card, ask, price, to, claim, now)
            if card.approval is None:
                done = self._grant(conn, card, asked, btc, now)
                repository.add_redemption(conn, done)
                note_empty(conn, card, actor=repository.ACTOR, now=now)
            else:
                done = self._hold(conn, card, asked, now)
            return self._shown(conn, done, claim)

        return await self._attempt(redeem, work, origin, is_write=True)

    async def status(self, id: str) -> Redeemed:
        """Return a redemption to anybody who knows its id. Raises NotFound."""
        return await self._deps.store.read(
            lambda conn: self._shown(conn, repository.load_redemption(conn, id), None)
        )

    async def answering(self, token: str) -> tuple[Redemption, Card]:
        """Return what an approval link asks about, without changing anything.

        Raises NotFound, Conflict (too late).
        """
        id = self._asking.read(token, now=self._deps.clock.now())

        def load(conn: Connection) -> tuple[Redemption, Card]:
            one = repository.load_redemption(conn, id)
            return one, repository.load_card(conn, one.card)

        return await self._deps.store.read(load)

    async def approve(self, token: str) -> Redeemed:
        """Approve a redemption, once.

        Raises NotFound, Conflict (answered before, too late, or its account may not act by now: what it got
        would be stuck there), NoRate (the link stays valid).
        """
        id = self._asking.read(token, now=self._deps.clock.now())
        kind = (await self.status(id)).redemption.kind
        btc = await self._deps.rates.usd("BTC") if kind is Kind.SATS else None
        now = self._deps.clock.now()

        def approve(conn: Connection) -> Redeemed:
            card, one = _locked(conn, id)
            _refuse_answered(one, now)
            try:
                demand_may(conn, one.account, Act.FUND, now=now)
            except Forbidden as error:
                raise Conflict(why=error.facts["why"], reason="not_active", hint=_STAYS) from None
            ledger.let_go(conn, one, reason="approved", now=now)
            given = self._grant(conn, card, one, btc, now)
            done = repository.move_redemption(
                conn, given, RedemptionSignal.APPROVE, actor="approver", now=now, reason="approved"
            )
            note_empty(conn, card, actor=repository.ACTOR, now=now)
            return self._shown(conn, done, None)

        return await self._deps.store.write(approve)

    async def deny(self, token: str) -> Redeemed:
        """Deny a redemption, once; what was held is on the card again."""
        id = self._asking.read(token, now=self._deps.clock.now())
        now = self._deps.clock.now()

        def deny(conn: Connection) -> Redeemed:
            _, one = _locked(conn, id)
            _refuse_answered(one, now)
            return self._shown(conn, _end(conn, one, RedemptionSignal.DENY, "denied", now), None)

        return await self._deps.store.write(deny)

    async def expire_overdue(self) -> datetime | None:
        """End redemptions that nobody answered. Returns when the next is due."""
        now = self._deps.clock.now()

        def expire(conn: Connection) -> None:
            for id in repository.overdue(conn, now=now):
                _, one = _locked(conn, id)
                if one.state is RedemptionState.PENDING_APPROVAL:
                    _end(conn, one, RedemptionSignal.TIME_OVER, "nobody answered in time", now)

        if await self._deps.store.read(lambda conn: repository.overdue(conn, now=now, limit=1)):
            await self._deps.store.write(expire)
        return await self._deps.store.read(repository.next_overdue)

    async def _attempt(
        self,
        act: Callable[[Connection], T | None],
        work: Work | None,
        origin: Origin | None,
        *,
        is_write: bool,
    ) -> T:
        """Count an attempt before the code is looked up, and give it back if the code was right."""
        wall = int(self._deps.clock.now().timestamp())
        begun = self.attempts.begin(work, now=time.monotonic(), wall=wall, origin=origin)
        run = self._deps.store.write if is_write else self._deps.store.read
        try:
            found = await run(act)
        except SandboxerError:
            # Refused for another reason than the words.
            self.attempts.forgive(begun)
            raise
        if found is None:
            hint = "Check its four words: POST /v1/gift-cards/balance."
            raise NotFound(what="gift card with anything left on it", id="(by its code)", hint=hint)
        self.attempts.forgive(begun)
        return found

    def _price(self, ask: Ask) -> int | None:
        """In cents for a tier; None for sats."""
        if ask.tier is None and ask.months is None:
            return None
        if ask.tier is None or ask.months is None or ask.cents is not None:
            raise InvalidRequest(field="tier", why="name a tier and months, or cents, or neither for all")
        return tier_price(ask.tier, ask.months, self._deps.tiers).cents

    def _asked(
        self,
        conn: Connection,
        card: Card,
        ask: Ask,
        price: int | None,
        to: str | None,
        claim: Claim,
        now: datetime,
    ) -> Redemption:
        available = ledger.left_on(conn, card).available
        cents = price if price is not None else ask.cents or available
        if not 0 < cents <= available:
            raise Conflict(
                why=f"{cents} US cents are needed, {available} are left to redeem",
                reason="too_little_left",
                required_cents=cents,
                available_cents=available,
                hint="Redeem less, or another card.",
            )
        return Redemption(
            id=new_id("rdm"),
            card=card.id,
            request_id=ask.request_id,
            fingerprint=ask.fingerprint,
            state=RedemptionState.GRANTED,
            kind=Kind.SATS if price is None else Kind.TIER,
            tier=ask.tier,
            months=ask.months,
            cents=cents,
            sats=None,
            rate=None,
            account=to or new_id("acc"),
            is_new_account=to is None,
            claim_hash=claim.hash if to is None else None,
            public_key=None,
            entitled_until=None,
            reason="redeemed",
            created_at=now,
            updated_at=now,
            expires_at=None,
        )

    def _hold(self, conn: Connection, card: Card, asked: Redemption, now: datetime) -> Redemption:
        policy = self._deps.policy
        if len(repository.pending_of(conn, card.id)) >= policy.pending_per_card or (
            repository.asked_today(conn, card.id, now=now) >= policy.asked_per_day
        ):
            raise TooManyRequests(
                limit=policy.pending_per_card,
                retry_after_s=DAY_S,
                per="card",
                hint="Wait until the redemptions that are pending have been answered.",
            )
        waits = replace(
            asked,
            state=RedemptionState.PENDING_APPROVAL,
            reason="waits for approval",
            expires_at=now + policy.approve_within,
        )
        if waits.kind is Kind.TIER and not waits.is_new_account:
            self._until(conn, waits, now)
        ledger.hold(conn, card, waits, now=now)
        repository.add_redemption(conn, waits)
        self._asking.ask(conn, card, waits, now=now)
        return waits

    def _grant(
        self, conn: Connection, card: Card, one: Redemption, btc: Rate | None, now: datetime
    ) -> Redemption:
        """Grant a redemption: the account, its key if it is new, and what was asked for."""
        accounts.ensure(conn, one.account, actor=repository.ACTOR, now=now)
        public_key = one.public_key
        if one.claim_hash is not None and public_key is None:
            public_key = self._deps.key_life.prepare(
                conn, one.account, "gift card", claim_hash=one.claim_hash, actor=repository.ACTOR
            )
        given = replace(one, public_key=public_key, updated_at=now)
        if one.kind is Kind.SATS:
            if btc is None:
                raise InvalidRequest(field="rate", why="a redemption for sats needs one")
            sats = ledger.take_for_sats(conn, card, one, btc, now=now)
            return replace(given, sats=sats, rate=str(btc.usd))
        until = self._until(conn, one, now)
        ledger.take_for_tier(conn, card, one, now=now)
        accounts.entitle(
            conn,
            one.account,
            tier=one.tier,
            until=until,
            actor=repository.ACTOR,
            reason="redeemed a gift card",
            now=now,
        )
        return replace(given, entitled_until=until)

    def _until(self, conn: Connection, one: Redemption, now: datetime) -> datetime:
        """Return when the tier would end. A gift never lowers a tier, not even for a longer time."""
        account = accounts.load(conn, one.account, lock=True)
        has = account.tier_at(now)
        if one.tier is None or one.months is None:
            raise Broken(why=f"{one.id} redeems a tier and names none")
        if has is not None and has > one.tier:
            raise Conflict(
                why=f"the account has tier {has} until {account.entitled_until}",
                hint=f"Redeem tier {has} or higher, or sats.",
            )
        return entitled_until(has, account.entitled_until, one.tier, one.months, now=now)

    def _again(self, conn: Connection, ask: Ask, known: Redemption, claim: Claim) -> Redeemed:
        if known.fingerprint != ask.fingerprint:
            raise IdempotencyConflict(key=ask.request_id)
        return self._shown(conn, known, claim)

    def _shown(self, conn: Connection, one: Redemption, claim: Claim | None) -> Redeemed:
        card = repository.load_card(conn, one.card)
        found = accounts.find(conn, one.account)
        return Redeemed(
            redemption=one,
            left=ledger.left_on(conn, card).available,
            account=None if found is None else found.public_id,
            claim=claim if one.is_new_account else None,
        )

    def _claim(self, lookup: str, request_id: str) -> Claim:
        """Return the same claim for the same code and request, so that a lost answer can be repeated."""
        mac = hmac.new(self._claim_key, f"{lookup}:{request_id}".encode(), hashlib.sha256).digest()
        return Claim(base64.urlsafe_b64encode(mac).decode().rstrip("="))


def _locked(conn: Connection, id: str) -> tuple[Card, Redemption]:
    """Lock the card first and then the redemption, as everywhere, so that two answers at once do not
    deadlock.
    """
    card = repository.load_card(conn, repository.load_redemption(conn, id).card, lock=True)
    return card, repository.load_redemption(conn, id, lock=True)


def _refuse_answered(one: Redemption, now: datetime) -> None:
    """Raise Conflict if the redemption was answered before or its time is over."""
    if one.state is not RedemptionState.PENDING_APPROVAL:
        why = f"this redemption is {one.state.value} already"
        raise Conflict(why=why, reason="already_answered", hint="Nothing is left to answer.")
    if one.expires_at is None or one.expires_at <= now:
        raise Conflict(why="the time to answer is over", reason="link_expired", hint=REDEEM_AGAIN)


def _end(
    conn: Connection, one: Redemption, signal: RedemptionSignal, reason: str, now: datetime
) -> Redemption:
    ended = repository.move_redemption(conn, one, signal, actor="approver", now=now, reason=reason)
    ledger.let_go(conn, one, reason=reason, now=now)
    return ended
