"""Where cards are bought, looked at, revoked and refunded: the use cases behind the routes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.accounts import audit, caps
from sandboxer.accounts import records as accounts
from sandboxer.accounts.authority import Act, demand_may
from sandboxer.accounts.sums import GIFT, spent_by
from sandboxer.identity.authenticate import matches
from sandboxer.identity.key_life import Claim, KeyLife, new_claim
from sandboxer.identity.keys import secret_hash
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, Forbidden, InvalidRequest, NotAvailable, SandboxerError
from sandboxer.kernel.values import new_id, value_class
from sandboxer.money.buckets import spend
from sandboxer.money.pricing import TierPrices
from sandboxer.money.segments import count_move
from sandboxer.observe.webhooks.carrier import new_secret
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.payments.credits import account_to_pay
from sandboxer.payments.gift_cards import ledger, repository
from sandboxer.payments.gift_cards.approval import SECRET_CONTEXT, check_address
from sandboxer.payments.gift_cards.codes import LOOKUP_INFO, lookup_of, new_code
from sandboxer.payments.gift_cards.ledger import cancel_pending, issue
from sandboxer.payments.gift_cards.records import (
    KIND,
    POLICY,
    Approval,
    Card,
    CardSignal,
    CardState,
    GiftPolicy,
    MailServer,
    Source,
)
from sandboxer.payments.invoices.records import Buys
from sandboxer.payments.invoices.use_cases import InvoiceUseCases, Order, Ordered
from sandboxer.payments.rates import Rates, sats_for_cents
from sandboxer.store.engine import Store

Also = Callable[[Connection, str], None]


@value_class
class CardOrder:
    cents: int
    source: Source
    # Who asks, as limits count; and his account, if he said who he is.
    asked_by: str
    account: str | None = None
    # His key: what he pays in sats counts against its spending cap.
    key: str = ""
    is_owner: bool = False
    # For a card paid by invoice.
    currency: str | None = None
    refund_address: str | None = None
    approval: Approval | None = None
    reason: str = ""


@value_class
class Created:
    card: Card
    # Proves the buyer; shown here and never again.
    claim: Claim
    # The four words, if the card is paid already.
    code: str | None = field(default=None, repr=False)
    ordered: Ordered | None = None
    # Signs the webhooks that ask for approval.
    approval_secret: str | None = field(default=None, repr=False)


@value_class
class Who:
    """Who wants to do something with a card: the buyer by his claim or account, or the operator."""

    claim: str | None = None
    account: str | None = None
    is_owner: bool = False

    @property
    def actor(self) -> str:
        return self.account or "claim"


@value_class
class CardView:
    card: Card
    left: int
    held: int


@value_class
class GiftCardDependencies:
    store: Store
    clock: Clock
    seal: Seal
    rates: Rates
    tiers: TierPrices
    key_life: KeyLife
    # Must sell `ledger.GiftCardGoods`.
    invoices: InvoiceUseCases
    webhooks: Webhooks
    # The platform's own address, for links.
    url: str
    policy: GiftPolicy = POLICY
    # None: no mail is sent.
    mail: MailServer | None = None


class GiftCardUseCases:
    def __init__(self, deps: GiftCardDependencies) -> None:
        self.deps = deps
        self._pepper = deps.seal.derive(LOOKUP_INFO)

    async def create(self, order: CardOrder, *, also: Also | None = None) -> Created:
        """`also` is written in the transaction that makes the card (and takes the sats), with its id.

        Raises InvalidRequest, Forbidden, NoRate, InsufficientCredit, and what invoices raise.
        """
        self._check(order)
        claim = new_claim()
        now, id = self.deps.clock.now(), new_id("gft")
        secret, sealed = self._approval_secret(id, order.approval)
        card = Card(
            id=id,
            state=CardState.AWAITING,
            source=order.source,
            cents=order.cents,
            written_off=0,
            lookup=None,
            claim_hash=claim.hash,
            account=order.account,
            invoice=None,
            approval=order.approval,
            approval_secret=sealed,
            reason=order.reason,
            created_at=now,
            updated_at=now,
            paid_at=None,
            shown_at=None,
            revoked_at=None,
        )
        made = Created(card=card, claim=claim, approval_secret=secret)
        if order.source is Source.INVOICE:
            return await self._by_invoice(made, order, also)
        return await self._at_once(made, order, also)

    async def recall(self, id: str, account: str) -> Created | None:
        """A card whose buyer never got the answer: it is his, its secrets are made anew. None: there is none.

        What could be paid for was not: the invoice of a card paid so is told again.
        """
        now, claim = self.deps.clock.now(), new_claim()

        def again(conn: Connection) -> Created | None:
            card = repository.find_card(conn, id, lock=True)
            if card is None or card.account != account:
                return None
            if card.source is Source.INVOICE and card.invoice is None:
                repository.drop_unsold(conn, id)
                return None
            secret, sealed = self._approval_secret(id, card.approval)
            repository.change_card(conn, id, claim_hash=claim.hash, approval_secret=sealed)
            kept = replace(card, claim_hash=claim.hash, approval_secret=sealed)
            code = None
            if card.state is CardState.ACTIVE and card.source is not Source.INVOICE:
                kept, code = self._give_code(conn, kept, now)
            return Created(card=kept, claim=claim, code=code, approval_secret=secret)

        if (made := await self.deps.store.write(again)) is None or made.card.invoice is None:
            return made
        seen = await self.deps.invoices.view(made.card.invoice)
        return replace(made, ordered=Ordered(invoice=seen.invoice, uri=seen.uri, claim=None))

    async def view(self, id: str) -> CardView:
        """Whoever knows the id may see it. Raises NotFound."""
        return await self.deps.store.read(lambda conn: _view(conn, repository.load_card(conn, id)))

    async def page(
        self, *, state: CardState | None = None, after: str | None = None, limit: int = 100
    ) -> list[CardView]:
        def load(conn: Connection) -> list[CardView]:
            return [
                _view(conn, card) for card in repository.page(conn, state=state, after=after, limit=limit)
            ]

        return await self.deps.store.read(load)

    async def reveal(self, id: str, who: Who, *, again: bool = False) -> tuple[Card, str]:
        """The four words, made in this moment: the first time, or instead of the ones before."""
        now = self.deps.clock.now()

        def reveal(conn: Connection) -> tuple[Card, str]:
            card = repository.load_card(conn, id, lock=True)
            _demand(card, replace(who, is_owner=False))
            if card.state is not CardState.ACTIVE:
                raise Conflict(
                    why=f"the card is {card.state.value}",
                    reason="not_paid" if card.state is CardState.AWAITING else "ended",
                    hint="Pay its invoice and wait for the confirmations; the card says when they are there.",
                )
            if card.shown_at is not None and not again:
                raise Conflict(
                    why="the code was shown before, and is kept nowhere",
                    reason="already_shown",
                    hint="Ask with again=true for a new code; the old one ends then.",
                )
            return self._give_code(conn, card, now)

        return await self.deps.store.write(reveal)

    async def revoke(self, id: str, who: Who, *, reason: str) -> CardView:
        """Nothing can be redeemed any more; what waits for approval is cancelled. Twice is once."""
        now = self.deps.clock.now()

        def revoke(conn: Connection) -> CardView:
            card = repository.load_card(conn, id, lock=True)
            _demand(card, who)
            if card.state in (CardState.REVOKED, CardState.REFUNDED):
                return _view(conn, card)
            revoked = repository.move_card(
                conn, card, CardSignal.REVOKE, actor=who.actor, now=now, revoked_at=now
            )
            cancel_pending(conn, revoked, reason="the card was revoked", actor=who.actor, now=now)
            if card.source is Source.OPERATOR:
                ledger.give_back_free(conn, revoked, now=now)
            if who.is_owner:
                _audit(conn, who, "gift_card.revoke", card, reason, now)
            return _view(conn, revoked)

        return await self.deps.store.write(revoke)

    async def refund_to_sats(self, id: str, who: Who, *, account: str | None) -> tuple[CardView, int]:
        """What is left becomes sats of an account: by its public id, or the caller's own."""
        btc = await self.deps.rates.usd("BTC")
        now = self.deps.clock.now()

        def refund(conn: Connection) -> tuple[CardView, int]:
            card = repository.load_card(conn, id, lock=True)
            _demand(card, who)
            to = account_to_pay(conn, account, now=now).id if account is not None else who.account
            if to is None:
                raise InvalidRequest(field="account", why="say whose sats they become (a public id)")
            demand_may(conn, to, Act.FUND, now=now)
            after, sats = ledger.refund_to_sats(conn, card, to, btc, actor=who.actor, now=now)
            return _view(conn, after), sats

        return await self.deps.store.write(refund)

    async def refund_to_address(self, id: str, who: Who, *, address: str | None) -> tuple[CardView, int]:
        """What is left, less restocking, is queued to go back in the coin it was paid with (atomic units)."""
        now = self.deps.clock.now()
        if (invoice_id := (await self.view(id)).card.invoice) is None:
            raise Conflict(why="it was not paid by invoice", hint="Refund it to an account's sats.")
        invoice = (await self.deps.invoices.view(invoice_id)).invoice
        chain = self.deps.invoices.chains.get(invoice.price.asset)
        if address is not None:
            if chain is None:
                raise NotAvailable(what=f"Paying in {invoice.price.asset}", why="it is not set up any more")
            chain.check_address(address)
        to = address or invoice.refund_address
        if to is None:
            raise InvalidRequest(field="address", why="no refund address is known; name one")

        def refund(conn: Connection) -> tuple[CardView, int]:
            card = repository.load_card(conn, id, lock=True)
            _demand(card, who)
            after, atomic = ledger.refund_to_address(
                conn, card, to, percent=self.deps.policy.restocking_percent, actor=who.actor, now=now
            )
            return _view(conn, after), atomic

        return await self.deps.store.write(refund)

    def _check(self, order: CardOrder) -> None:
        policy, asks = self.deps.policy, order.approval
        if not policy.min_cents <= order.cents <= policy.max_cents:
            raise InvalidRequest(
                field="cents", why=f"a card is worth {policy.min_cents} to {policy.max_cents} US cents"
            )
        if order.source is Source.OPERATOR:
            if not order.is_owner:
                raise Forbidden(why="only the owner of the platform gives cards away")
            if not order.reason.strip():
                raise InvalidRequest(field="reason", why="say why")
        if order.source is Source.SATS and not policy.for_sats:
            raise NotAvailable(what="Buying gift cards from sats", why="the operator does not offer it")
        if asks is None:
            return
        if asks.email is None and asks.webhook is None:
            raise InvalidRequest(field="approval", why="name an e-mail address or a webhook")
        if asks.email is not None and self.deps.mail is None:
            raise NotAvailable(what="Approval by e-mail", why="no mail server is set up; use a webhook")
        if asks.email is not None:
            check_address(asks.email, field="approval.email")
        if asks.webhook is not None:
            self.deps.webhooks.check_url(asks.webhook)

    def _approval_secret(self, id: str, asks: Approval | None) -> tuple[str | None, bytes | None]:
        """Open and sealed; none where no webhook asks."""
        if asks is None or asks.webhook is None:
            return None, None
        secret = new_secret()
        return secret, self.deps.seal.close(secret.encode(), context=f"{SECRET_CONTEXT}:{id}")

    async def _by_invoice(self, made: Created, order: CardOrder, also: Also | None) -> Created:
        """The card first: an invoice that is paid must find it."""
        card, account = made.card, order.account
        if order.currency is None:
            raise InvalidRequest(field="currency", why="say which coin it is paid in")

        def add(conn: Connection) -> str | None:
            ledger.open_books(conn, card, now=card.created_at)
            repository.add_card(conn, card, actor=account or repository.ACTOR)
            if also is not None:
                also(conn, card.id)
            return None if account is None else accounts.load(conn, account).public_id

        public_id = await self.deps.store.write(add)
        try:
            ordered = await self.deps.invoices.create(
                Order(
                    asset=order.currency,
                    asked_by=order.asked_by,
                    caller=order.account,
                    account=public_id,
                    refund_address=order.refund_address,
                    goods=Buys(kind=KIND, cents=card.cents, reference=card.id),
                )
            )
        except SandboxerError:
            # Only then is it certain that there is none. A caller who went away leaves an unpaid card behind.
            await self.deps.store.write(lambda conn: repository.drop_unsold(conn, card.id))
            raise
        # One secret for the buyer: what he overpays is fetched with the same.
        claim = ordered.claim or made.claim
        sold = replace(card, invoice=ordered.invoice.id, claim_hash=claim.hash)
        await self.deps.store.write(
            lambda conn: repository.change_card(
                conn, sold.id, invoice=sold.invoice, claim_hash=sold.claim_hash
            )
        )
        return replace(made, card=sold, claim=claim, ordered=ordered)

    async def _at_once(self, made: Created, order: CardOrder, also: Also | None) -> Created:
        now, card = made.card.created_at, made.card
        sats = 0
        if order.source is Source.SATS:
            sats = sats_for_cents(card.cents, await self.deps.rates.usd("BTC"))

        def create(conn: Connection) -> tuple[Card, str]:
            ledger.open_books(conn, card, now=now)
            repository.add_card(conn, card, actor=order.account or repository.ACTOR)
            if also is not None:
                also(conn, card.id)
            debit = ledger.OUTSIDE
            if sats:
                _pay_in_sats(conn, card, sats, order.key, now)
                debit = ledger.STOCK
            else:
                who = Who(account=order.account, is_owner=True)
                _audit(conn, who, "gift_card.give", card, order.reason, now)
            paid = issue(conn, card, debit=debit, round=0, actor=order.account or repository.ACTOR, now=now)
            return self._give_code(conn, paid, now)

        shown, code = await self.deps.store.write(create)
        return replace(made, card=shown, code=code)

    def _give_code(self, conn: Connection, card: Card, now: datetime) -> tuple[Card, str]:
        code = new_code()
        while repository.is_taken(conn, lookup_of(code, self._pepper)):
            code = new_code()
        shown = replace(card, lookup=lookup_of(code, self._pepper), shown_at=now)
        repository.change_card(conn, card.id, lookup=shown.lookup, shown_at=now)
        return shown, code


def _pay_in_sats(conn: Connection, card: Card, sats: int, key: str, now: datetime) -> None:
    """Within the account's caps; what is not confirmed cannot be given away."""
    if card.account is None:
        raise Forbidden(why="sign in to pay with sats")
    buyer = accounts.load(conn, card.account, lock=True)
    demand_may(conn, buyer.id, Act.SPEND, now=now)
    caps.check(buyer.caps, spent_by(conn, buyer.id, buyer.caps, key=key, now=now), wanted=sats)
    data = {"card": card.id, "cents": card.cents}
    spend(
        conn,
        buyer.id,
        sats,
        id=f"gift:{card.id}:paid",
        to=ledger.SATS_STOCK,
        kind=GIFT,
        reason="gift card",
        now=now,
        data=data,
    )
    count_move(conn, buyer.id, key, sats, at=now)


def _demand(card: Card, who: Who) -> None:
    """Raises Forbidden for who is neither the buyer nor the operator."""
    is_buyer = who.account is not None and who.account == card.account
    offered = "" if who.claim is None else secret_hash(who.claim.encode("utf-8", "surrogatepass"))
    if not (matches(card.claim_hash, offered) or is_buyer or who.is_owner):
        raise Forbidden(
            why="this is for the buyer of the card",
            hint="Send the claim that came with the card, or sign with the account that bought it.",
        )


def _view(conn: Connection, card: Card) -> CardView:
    left = ledger.left_on(conn, card)
    return CardView(card=card, left=left.available, held=left.held)


def _audit(conn: Connection, who: Who, action: str, card: Card, reason: str, now: datetime) -> None:
    data = {"cents": card.cents}
    audit.append(conn, actor=who.actor, action=action, subject=card.id, reason=reason, data=data, now=now)
