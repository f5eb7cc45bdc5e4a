"""The checkout takes a presented payment to settled money, step by step. What is bought is made in between,
by the caller.

    take ──> verified and written down (queued) ──> [provision] ──> settle ──> confirmed, mempool
      │                                                 │              └────> settlement_pending: never again
      └── known already: whatever became of it          └── failed: withdraw; nothing was broadcast

A payment that a request of this process works on is `live`: the reconciler leaves it alone, and a second
request that presents it waits for the first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from sandboxer.accounts.authority import Act, demand_may
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import ChainUnavailable, Conflict, InvalidRequest, PaymentRefused, Unavailable
from sandboxer.kernel.program import late
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import Sats
from sandboxer.payments import credits, records, settlement
from sandboxer.payments.lifecycle import CREDITED, FAILURES, IN_FLIGHT, Signal, State
from sandboxer.payments.records import Order, Payment, Purpose
from sandboxer.payments.settlement import ENDS, Depth, agreed
from sandboxer.payments.x402 import presented as presenting
from sandboxer.payments.x402.offers import Offers, part_of
from sandboxer.payments.x402.presented import (
    FOUND,
    Presented,
    Wanted,
    advice,
    refusal,
    refuse_claim,
    refuse_other_use,
)
from sandboxer.payments.x402.ways import Fate, Sighting, Way, Ways, X402Settings
from sandboxer.store.engine import Store

if TYPE_CHECKING:
    from x402 import schemas
    from x402.schemas import PaymentRequirements, SettleResponse
else:
    schemas = late("x402.schemas")

log = logging.getLogger(__name__)
VERIFY_TIMEOUT = timedelta(seconds=15)
# Beyond the settler's own deadline, which is the settings' `settle_timeout`.
_LAST_WAIT = timedelta(seconds=5)
WATCHED_BEYOND = 12
_PENDING = "settlement_pending"
# In a payment's details: what its settler told the payer besides the reason.
ADVICE = "advice"


@value_class
class Taken:
    payment: Payment
    # False: it was settled or given up before; answer from its record.
    is_new: bool


@dataclass(slots=True, eq=False, repr=False)
class Checkout:
    store: Store
    clock: Clock
    ways: Ways
    offers: Offers
    settings: X402Settings
    # Payments that a request is at work on, and whom to tell when it is done.
    _live: dict[str, asyncio.Event] = field(default_factory=dict)
    # Held from the count of a payer's payments until the next one is live, and counts too.
    _counting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_live(self, payment_id: str) -> bool:
        return payment_id in self._live

    def present(self, headers: Iterable[tuple[bytes, bytes]]) -> Presented | None:
        """Return the payment in a request's headers, if there is one. Raises InvalidRequest."""
        header = presenting.payment_header(headers)
        return None if header is None else presenting.read(header, self.ways)

    @asynccontextmanager
    async def take(self, presented: Presented, wanted: Wanted) -> AsyncIterator[Taken]:
        """Verify a payment, record it, and keep it from every other request while the block runs.

        Raises PaymentRefused (pay otherwise), Conflict (it paid for something else), Unavailable.
        """
        known = await self._known(presented, wanted)
        if known is not None and known.state is not State.QUEUED:
            if known.details.get(FOUND):
                refuse_claim(known, wanted)
            yield Taken(payment=known, is_new=False)
            return
        way, requirements, sats = await self._price(presented, wanted)
        spent = await self._verify(way, presented, requirements)
        if way.settles_less and wanted.most_sats is not None:
            requirements, sats = part_of(requirements, sats, wanted.most_sats)
        done: asyncio.Event | None = None
        async with self._counting:
            payment = await self._write_down(
                presented, wanted, requirements, sats, is_found=spent is not None
            )
            if spent is None and payment.state is State.QUEUED and payment.id not in self._live:
                self._live[payment.id] = done = asyncio.Event()
        if spent is not None:
            payment = await self._arrived(payment, spent)
            refuse_claim(payment, wanted)
            yield Taken(payment=payment, is_new=False)
            return
        if done is None:
            # Another request was faster.
            async with self.take(presented, wanted) as taken:
                yield taken
            return
        try:
            yield Taken(payment=payment, is_new=True)
        finally:
            del self._live[payment.id]
            done.set()

    async def prove(self, presented: Presented, wanted: Wanted) -> None:
        """Raise as `take` would, unless this payment could be taken now, which proves that its payer sent it.

        Nothing is written. Who only names a wallet, or copies what it once signed, learns nothing of what
        the wallet has here.
        """
        known = await self._known(presented, wanted)
        if known is not None and known.state is not State.QUEUED:
            return
        way, requirements, _ = await self._price(presented, wanted)
        if (spent := await self._verify(way, presented, requirements)) is not None:
            raise spent

    def fund(self, conn: Connection, payment: Payment, sandbox_id: str, now: datetime) -> None:
        """Credit the payment in the transaction that makes a sandbox, and note that sandbox in its record."""
        current = records.load(conn, payment.id, lock=True)
        settlement.grant(
            conn, current, pending_limit=self.settings.pending_limit_sats, now=now, sandbox_id=sandbox_id
        )

    async def withdraw(self, payment_id: str, reason: str) -> Payment:
        """Take back what a queued payment gave, because nothing was made for it. It can be used again."""
        now = self.clock.now()

        def write(conn: Connection) -> Payment:
            payment = records.load(conn, payment_id, lock=True)
            if payment.state is not State.QUEUED:
                return payment
            return settlement.take_back(conn, payment, reason=reason, now=now)

        return await self.store.write(write)

    async def settle(self, payment: Payment) -> Payment:
        """Broadcast a payment and record what is known then. No error hides where the money is."""
        way = self._way_of(payment)
        payment = await self._submit(payment)
        answer = await self._ask(way, payment)
        if (sighting := await self._interpret(way, payment, answer)) is None:
            return await self._refused(payment, answer)
        return await self.see(payment, sighting)

    async def see(self, payment: Payment, sighting: Sighting) -> Payment:
        """Record what was seen of a payment."""
        now = self.clock.now()
        way = self._way_of(payment)
        depth = Depth(final=way.confirmations, watched=WATCHED_BEYOND, missing=way.missing_blocks)
        limit = self.settings.pending_limit_sats
        return await self.store.write(
            lambda conn: settlement.see(conn, payment, sighting, depth=depth, pending_limit=limit, now=now)
        )

    async def look(self, payment: Payment) -> Sighting:
        """Ask the chain what became of a payment. Where there are two nodes, both must say that it is lost.

        Raises ChainUnavailable.
        """
        way = self._way_of(payment)
        if (off := self.ways.why_off(way.network)) is not None:
            # Perhaps another chain's: nothing may be concluded from it.
            raise ChainUnavailable(chain=way.network, why=off)
        first = await way.watcher.look(payment)
        is_loss = first.fate in ENDS or payment.state in CREDITED
        if way.witness is None or first.fate is Fate.CONFIRMED or not is_loss:
            return first
        return agreed(first, await way.witness.look(payment))

    async def follow(self, payment: Payment) -> Payment:
        """Look at a payment, record what was seen, and settle it again if perhaps nobody ever sent it."""
        sighting = await self.look(payment)
        after = await self.see(payment, sighting)
        if sighting.fate is Fate.UNSEEN and after.state is State.SETTLEMENT_PENDING:
            # Its nonce sees to it that it counts once.
            return await self.settle(after)
        return after

    async def _known(self, presented: Presented, wanted: Wanted) -> Payment | None:
        """Return the record of this very payment, after another request that works on it is done."""
        way, authorization = presented.way, presented.authorization
        if way is None or authorization is None:
            return None

        def find(conn: Connection) -> Payment | None:
            found = records.find_presented(conn, way.network, authorization.payer, authorization.nonce)
            records.refuse_other_payload(
                conn, authorization.payer, presented.identifier, presented.payload_hash
            )
            return found

        known = await self.store.read(find)
        if known is None or await self._is_superseded(known, presented):
            return None
        refuse_other_use(known, presented, wanted)
        if (live := self._live.get(known.id)) is None:
            return known
        await live.wait()
        return await self._known(presented, wanted)

    async def _is_superseded(self, known: Payment, presented: Presented) -> bool:
        """Return whether another payment with its nonce may replace it: it bought nothing, no request works
        on it, and its chain has not seen it. Otherwise, where nonces are counted, the payer could not pay
        here any more.
        """
        if known.payload_hash == presented.payload_hash or not self._is_idle(known):
            return False
        return (await self.see(known, await self.look(known))).state is State.QUEUED

    def _is_idle(self, payment: Payment) -> bool:
        return payment.state is State.QUEUED and payment.id not in self._live

    async def _price(self, presented: Presented, wanted: Wanted) -> tuple[Way, PaymentRequirements, Sats]:
        """Return what it was offered for. The requirement is our own, never the presented one unchecked."""
        way, accepted, requirements = presented.way, presented.accepted, presented.payload.accepted
        if way is None:
            raise PaymentRefused(why="this network or scheme is not taken here", reason="invalid_network")
        if (off := self.ways.why_off(way.network)) is not None:
            raise Unavailable(
                why=f"payments on {way.network} are off now ({off}); nothing was taken",
                hint="Pay on another network (GET /v1/pricing), or later.",
            )
        if accepted is None or presented.authorization is None:
            raise PaymentRefused(why="this asset is not taken here", reason="unrecognized_asset")
        if presented.version == 1:
            if wanted.tag:
                raise PaymentRefused(
                    why="this is sold in version 2 of x402 only", reason="invalid_x402_version"
                )
            sats = await self.offers.worth(accepted, presented.authorization.amount)
        else:
            if (offer := self.offers.open(requirements)) is None or offer.tag != wanted.tag:
                raise PaymentRefused(
                    why="this is no offer of ours, has expired, or was made for something else",
                    reason="invalid_payment_requirements",
                )
            sats = offer.sats
        if sats < wanted.least_sats:
            raise PaymentRefused(
                why=f"{wanted.least_sats} sats are needed, this pays {sats}", reason="amount_insufficient"
            )
        return way, requirements, sats

    async def _verify(
        self, way: Way, presented: Presented, requirements: PaymentRequirements
    ) -> PaymentRefused | None:
        """Ask the facilitator whether the payment is valid. Raises PaymentRefused, Unavailable.

        Returns the refusal of a payment that is perhaps made already: its nonce is spent, its payer signed
        it, and we have never seen it.
        """
        try:
            async with asyncio.timeout(VERIFY_TIMEOUT.total_seconds()):
                answer = await way.facilitator.verify(presented.payload, requirements)
        except Exception as error:
            log.warning("a payment on %s could not be verified: %s", way.network, type(error).__name__)
            raise Unavailable(
                why="the payment could not be verified now; nothing was taken",
                hint="Present the same payment again in a few seconds.",
            ) from None
        authorization = presented.authorization
        if not answer.is_valid or authorization is None:
            refused = refusal(answer)
            is_spent = "nonce" in str(refused.facts["reason"])
            if is_spent and way.reader.is_signed(presented.payload, requirements):
                return refused
            raise refused
        if answer.payer is not None and answer.payer.lower() != authorization.payer.lower():
            raise PaymentRefused(why="the payer is not who signed", reason="sender_mismatch")
        return None

    async def _arrived(self, payment: Payment, refusal: PaymentRefused) -> Payment:
        """Count a payment that somebody else carried to the chain, if the money is here."""
        payment = await self.see(payment, await self.look(payment))
        if payment.state in FAILURES:
            raise refusal
        return payment

    async def _write_down(
        self,
        presented: Presented,
        wanted: Wanted,
        requirements: PaymentRequirements,
        sats: Sats,
        *,
        is_found: bool,
    ) -> Payment:
        """Record a verified payment, or return the record that it has.

        `is_found` says that it is on its chain already, where everybody can copy it. So whoever presents it
        decides nothing: it is credit for the account of the wallet that signed, or for whom that wallet's
        holder presented it before it was there.
        """
        now = self.clock.now()
        authorization = presented.authorization
        wallet = presenting.payer_wallet(presented)
        assert authorization is not None
        assert wallet is not None
        payer = authorization.payer

        def write(conn: Connection) -> Payment:
            known = records.find_presented(conn, requirements.network, payer, authorization.nonce)
            account = wanted.account
            if is_found and known is not None:
                account = known.account
            elif account is None or is_found:
                account = credits.account_for_wallet(conn, wallet, now=now).id
            if not is_found:
                # What lies on its chain already is credited all the same.
                demand_may(conn, account, Act.FUND, now=now)
            order = Order(
                network=requirements.network,
                payer=payer,
                nonce=authorization.nonce,
                payload_hash=presented.payload_hash,
                identifier=presented.identifier,
                scheme=requirements.scheme,
                asset=requirements.asset,
                amount=int(requirements.amount),
                sats=sats,
                account=account,
                purpose=Purpose.TOPUP if is_found else wanted.purpose,
                details={
                    **({} if is_found else wanted.details),
                    "request": wanted.request_hash,
                    "version": presented.version,
                    records.WALLET: wallet.caip10,
                    **({FOUND: True} if is_found else {}),
                },
                payload=presented.payload.model_dump(by_alias=True, exclude_none=True, mode="json"),
                requirements=requirements.model_dump(by_alias=True, exclude_none=True, mode="json"),
                valid_until=authorization.valid_until,
            )
            look_at = now + self._settle_deadline()
            if known is not None and known.payload_hash != order.payload_hash and self._is_idle(known):
                payment, is_new = records.supersede(conn, known, order, now=now, look_at=look_at), True
            else:
                payment, is_new = records.open_payment(conn, order, now=now, look_at=look_at)
            if is_new:
                self._refuse_too_many(conn, payment)
                return payment
            refuse_other_use(payment, presented, wanted)
            if payment.id in self._live or payment.state is not State.QUEUED:
                return payment
            self._refuse_too_many(conn, payment)
            return records.redirect(conn, payment, order, now=now)

        return await self.store.write(write)

    def _refuse_too_many(self, conn: Connection, payment: Payment) -> None:
        """Raise Conflict if the payer has too many payments under way. Those that buy something now count as
        well: all were verified against the same balance.
        """
        under_way = [
            other
            for other in records.unsettled(conn, payment.payer)
            if other.state in IN_FLIGHT or other.id in self._live
        ]
        if len(under_way) >= self.settings.unsettled_limit:
            raise Conflict(
                why=f"{len(under_way)} payments of this wallet are not settled yet",
                reason="too_many_unsettled",
                hint="Wait until they are confirmed (GET /v1/payments), then pay again.",
            )

    async def _submit(self, payment: Payment) -> Payment:
        now = self.clock.now()
        look_at = now + self._settle_deadline()
        return await self.store.write(
            lambda conn: records.move(
                conn, payment, Signal.SUBMIT, reason="handed to the settler", now=now, look_at=look_at
            )
        )

    async def _ask(self, way: Way, payment: Payment) -> SettleResponse | None:
        """Return the settler's answer; None if there was none, so that nobody knows."""
        payload = schemas.PaymentPayload.model_validate(payment.payload)
        requirements = schemas.PaymentRequirements.model_validate(payment.requirements)
        try:
            async with asyncio.timeout(self._settle_deadline().total_seconds()):
                return await way.facilitator.settle(payload, requirements)
        except Exception as error:
            log.warning("payment %s: the settler did not answer (%s)", payment.id, type(error).__name__)
            return None

    async def _interpret(self, way: Way, payment: Payment, answer: SettleResponse | None) -> Sighting | None:
        """Return what the answer says of the money; None if it has not moved, as far as the chain tells."""
        txid = answer.transaction or None if answer is not None else None
        if answer is not None and answer.success:
            # Its word is that it was sent; whether it is in a block, the chain is asked.
            seen = await self._look_or_guess(payment, txid) if way.settles_in_block else None
            is_found = seen is not None and seen.fate is Fate.CONFIRMED
            return seen if is_found else Sighting(fate=Fate.SEEN, txid=txid)
        seen = await self._look_or_guess(payment, txid)
        if seen.fate is not Fate.UNSEEN:
            return seen
        if answer is None or answer.error_reason == _PENDING:
            return Sighting(fate=Fate.UNSEEN, txid=txid)
        return None

    async def _look_or_guess(self, payment: Payment, txid: str | None) -> Sighting:
        if txid is not None and payment.txid is None:
            now = self.clock.now()
            payment = await self.store.write(lambda conn: records.note(conn, payment.id, now=now, txid=txid))
        try:
            return await self.look(payment)
        except Exception:
            log.exception("payment %s could not be looked up", payment.id)
            # Whatever was said, only the chain knows.
            return Sighting(fate=Fate.SEEN, txid=txid) if txid else Sighting(fate=Fate.UNKNOWN)

    async def _refused(self, payment: Payment, answer: SettleResponse | None) -> Payment:
        """Put a payment back to queued, because the settler refused it and its nonce is unspent. It is
        watched until it expires.
        """
        now = self.clock.now()
        reason = (answer.error_reason if answer is not None else None) or "unexpected_settle_error"

        def write(conn: Connection) -> Payment:
            back = records.move(
                conn,
                payment,
                Signal.REFUSE,
                reason=reason,
                now=now,
                look_at=now + settlement.FIRST_LOOK,
                details={ADVICE: {} if answer is None else advice(answer.error_message, answer.extra)},
            )
            return settlement.take_back(conn, back, reason=reason, now=now)

        return await self.store.write(write)

    def _way_of(self, payment: Payment) -> Way:
        if (way := self.ways.find(payment.network, payment.scheme)) is None:
            raise InvalidRequest(field="x402", why=f"{payment.scheme} on {payment.network} was taken away")
        return way

    def _settle_deadline(self) -> timedelta:
        return self.settings.settle_timeout + _LAST_WAIT


def is_delivered(payment: Payment) -> bool:
    """Return whether what it paid for is handed over: the money came, or may be coming."""
    return payment.state is State.CONFIRMED or payment.state in IN_FLIGHT


def refusal_of(payment: Payment) -> PaymentRefused:
    """Return the refusal that tells its payer why a payment did not go through."""
    next_step = "Sign a new payment." if payment.state in FAILURES else "Present the same payment again."
    return PaymentRefused(
        why=f"the payment was not settled: {payment.reason}",
        reason=payment.reason,
        payment_id=payment.id,
        hint=next_step,
        **payment.details.get(ADVICE, {}),
    )
