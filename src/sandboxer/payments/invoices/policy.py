"""These pure decisions say what state an invoice is in, given the outputs on its address, and what to do.

    observe   what was known, and what the chain shows now  ->  outputs
    decide    an invoice and its outputs                    ->  a signal for the state table, and acts

Only outputs deep enough become money, each once, each under an id that names it. What the chain takes back
after it became money is taken back here too. No look at the chain is trusted further than it goes: depth is
counted against the height of the chain, an output that changed its amount is a lie, and one that is missing
once may only be hidden.

The acts are values; an output and its round together name the ids of their transfers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeAlias

from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.payments.chains.contract import Deposit
from sandboxer.payments.invoices.records import Invoice, InvoicePolicy, Kind, Output, Settled, Signal, State

# After the expiry, until a payment that was in time may be replaced by a dearer one.
REPLACED_WITHIN = timedelta(hours=6)
# What an amount that is not at the invoice's price is worth in sats now.
Worth = Callable[[int], int]


@value_class
class Decision:
    signal: Signal
    acts: tuple[Act, ...]
    # As they are once the acts are done.
    outputs: tuple[Output, ...]
    confirm_by: datetime
    # Something waits for a rate.
    needs_rate: bool
    # The next look may come to something else even if the chain shows the same.
    is_restless: bool


@brief_value_class
class Deliver:
    """Hand over what was bought: a key, a tier, sats."""


@brief_value_class
class Withdraw:
    """Take back what was handed over."""


@value_class
class _OfOutput:
    """An act about one output, in one of its rounds."""

    output: str
    round: int


@value_class
class _Moved(_OfOutput):
    """So many sats for what was bought, and so many for the bucket."""

    sale: int
    bucket: int


class Credit(_Moved):
    """An output became money: so many sats for what was bought, so many into the bucket."""


class Reverse(_Moved):
    """The chain took it back: the same sums the other way; what was spent meanwhile is a debt."""


@value_class
class QueueRefund(_OfOutput):
    amount: int
    kept: int


class CancelRefund(_OfOutput):
    """The chain took back the output that was to be refunded."""


class Keep(_OfOutput):
    """Too little to give back to somebody without an account."""


Act: TypeAlias = Deliver | Withdraw | Credit | Reverse | QueueRefund | CancelRefund | Keep


def observe(
    invoice: Invoice,
    known: Iterable[Output],
    deposits: Iterable[Deposit],
    tip: int,
    *,
    now: datetime,
    since: datetime,
) -> tuple[Output, ...]:
    """Return the outputs as they are now. `since` is the look before this one.

    An output that nobody could have seen before the expiry counts as in time: a node that was down is not the
    payer's fault. So does an output that replaces a payment that was in time (wallets raise fees that way),
    for a few hours. Holding an old rate for longer would be a free option.
    """
    before = {output.id: output for output in known}
    shown = {deposit.id: deposit for deposit in deposits if deposit.address == invoice.address}
    seen = [
        _again(output, shown[id], tip) if id in shown else _missed(output) for id, output in before.items()
    ]
    replaces = any(o.is_in_time and not o.is_there and o.settled is Settled.OPEN for o in seen)
    is_unseen = since < invoice.expires_at and now <= invoice.confirm_by
    replace_by = min(invoice.expires_at + REPLACED_WITHIN, invoice.confirm_by)
    is_in_time = is_unseen or (replaces and now <= replace_by)
    new = [
        _first_seen(invoice, deposit, tip, is_in_time=is_in_time, now=now)
        for id, deposit in shown.items()
        if id not in before
    ]
    return tuple(sorted((*seen, *new), key=lambda o: (o.first_seen_at, o.name)))


def decide(
    invoice: Invoice,
    outputs: Sequence[Output],
    *,
    now: datetime,
    since: datetime,
    policy: InvoicePolicy,
    worth: Worth | None = None,
    sent_back: frozenset[str] = frozenset(),
    bound: frozenset[str] = frozenset(),
) -> Decision:
    """Decide what the outputs mean. `sent_back` are the names of outputs whose refund was sent, `bound` of
    those whose refund certainly spends that very output, so that it vanishes with the output.
    """
    plan = _Plan(invoice, outputs, policy, worth, sent_back, is_price_held=since <= invoice.confirm_by)
    plan.take_back_what_is_lost(sent_back - bound)
    if plan.firm_for_price() >= invoice.price.atomic and (
        invoice.is_delivered or since <= invoice.confirm_by
    ):
        if not invoice.is_delivered:
            if plan.lacks_rate():
                is_back = invoice.state is State.REORGED
                return plan.decision(Signal.TAKEN_BACK if is_back else Signal.IN_BLOCK)
            plan.acts.append(Deliver())
        plan.credit_for_price()
        plan.settle_rest(lambda output: not output.is_in_time)
        is_more = invoice.price.sats_for(plan.standing()) > invoice.price.sats
        return plan.decision(Signal.MORE if is_more else Signal.ENOUGH)
    if invoice.is_delivered:
        plan.withdraw()
        later = replace(invoice, confirm_by=max(invoice.confirm_by, now + policy.confirm_within))
        return replace(plan.decision(Signal.TAKEN_BACK), confirm_by=later.confirm_by)
    if invoice.state is State.REORGED and since <= invoice.confirm_by:
        return plan.decision(Signal.TAKEN_BACK)
    if (there := plan.there_for_price()) >= invoice.price.atomic and since <= invoice.confirm_by:
        return plan.decision(Signal.IN_BLOCK if plan.is_in_blocks() else Signal.IN_POOL)
    if now < invoice.expires_at:
        return plan.decision(_open_signal(plan, there))
    plan.settle_rest(lambda output: True)
    return plan.decision(_closed_signal(plan, sent_back))


class _Plan:
    """Builds a decision step by step: the outputs as they become, and the acts that make them so."""

    def __init__(
        self,
        invoice: Invoice,
        outputs: Sequence[Output],
        policy: InvoicePolicy,
        worth: Worth | None,
        sent_back: frozenset[str],
        *,
        is_price_held: bool,
    ) -> None:
        self.invoice = invoice
        self.outputs = {output.name: output for output in outputs}
        self.acts: list[Act] = []
        self.needs_rate = False
        self._policy = policy
        self._worth = worth
        self._sent_back = sent_back
        # What came in time is worth what was agreed, up to the invoiced amount and for so long.
        self._is_price_held = is_price_held

    def decision(self, signal: Signal) -> Decision:
        outputs = tuple(self.outputs.values())
        return Decision(
            signal=signal,
            acts=tuple(self.acts),
            outputs=outputs,
            confirm_by=self.invoice.confirm_by,
            needs_rate=self.needs_rate,
            is_restless=self.needs_rate or any(o.missed == 1 or self._is_going_back(o) for o in outputs),
        )

    def _is_going_back(self, output: Output) -> bool:
        return output.settled is Settled.REFUND and output.name not in self._sent_back

    def take_back_what_is_lost(self, unbound: frozenset[str]) -> None:
        for output in tuple(self.outputs.values()):
            if not output.is_lost:
                continue
            match output.settled:
                case Settled.CREDITED:
                    self._reverse(output)
                case Settled.REFUND if output.name not in unbound:
                    self.acts.append(CancelRefund(output=output.name, round=output.round))
                    self._reopen(output)
                case Settled.KEPT:
                    self._reopen(output)

    def withdraw(self) -> None:
        """Take back what was bought as a whole; outputs that only became sats, only where they were lost."""
        self.acts.append(Withdraw())
        if self.invoice.buys.kind != Kind.SATS:
            for output in tuple(self.outputs.values()):
                if output.settled is Settled.CREDITED and output.is_for_price:
                    self._reverse(output)

    def standing(self) -> int:
        """Return the sum of outputs that were credited for the price and are still there."""
        return sum(
            o.amount for o in self.outputs.values() if o.settled is Settled.CREDITED and o.is_for_price
        )

    def firm_for_price(self) -> int:
        return self.standing() + sum(o.amount for o in self._payable())

    def there_for_price(self) -> int:
        return self.standing() + sum(o.amount for o in self._candidates())

    def is_in_blocks(self) -> bool:
        """Return whether the outputs that cover the price are in blocks, however shallow."""
        deepest = sum(o.amount for o in self._candidates() if o.depth > 0)
        return self.standing() + deepest >= self.invoice.price.atomic

    def lacks_rate(self) -> bool:
        """Return whether more came than was asked for, and there is no rate for the rest now."""
        excess = self.firm_for_price() - self.invoice.price.atomic
        self.needs_rate = self._worth is None and excess > self._rounding()
        return self.needs_rate

    def _rounding(self) -> int:
        """Return how much more than the price is converted at the locked price, because wallets round up."""
        return self.invoice.price.atomic // 100

    def credit_for_price(self) -> None:
        """Credit the invoiced amount at the locked price, and what exceeds it at the present rate.

        Sums are converted, not parts, so that two halves credit the same as the whole.
        """
        price, is_sats = self.invoice.price, self.invoice.buys.kind == Kind.SATS
        locked = price.atomic + self._rounding()
        for output in self._payable():
            before = min(self.standing(), locked)
            held = min(output.amount, locked - before)
            sats = price.sats_for(before + held) - price.sats_for(before)
            if held < output.amount:
                if self._worth is None:
                    self.needs_rate = True
                    continue
                sats += self._worth(output.amount - held)
            sold = sum(o.sale_sats for o in self.outputs.values() if o.settled is Settled.CREDITED)
            sale = 0 if is_sats else min(sats, price.sats - sold)
            self._credit(output, sale=sale, bucket=sats - sale, is_for_price=True)

    def settle_rest(self, is_meant: Callable[[Output], bool]) -> None:
        """Refund outputs that pay for nothing, or turn them into sats."""
        needed = self.invoice.confirmations
        for output in tuple(self.outputs.values()):
            if output.settled is Settled.OPEN and output.is_firm(needed) and is_meant(output):
                self._settle_one(output)

    def _settle_one(self, output: Output) -> None:
        invoice = self.invoice
        is_small = invoice.price.sats_for(output.amount) < self._policy.dust_sats
        if is_small and invoice.is_new_account and invoice.public_key is None:
            self._keep(output)
        elif invoice.refund_address is not None and not is_small:
            kept = -(-output.amount * self._policy.restocking_percent // 100)
            amount = output.amount - kept
            self.acts.append(QueueRefund(output=output.name, round=output.round, amount=amount, kept=kept))
            self.outputs[output.name] = replace(output, settled=Settled.REFUND)
        elif self._is_at_locked_price(output):
            sats = invoice.price.sats_for(output.amount)
            self._credit(output, sale=0, bucket=sats, is_for_price=False)
        elif self._worth is None:
            self.needs_rate = True
        else:
            self._credit(output, sale=0, bucket=self._worth(output.amount), is_for_price=False)

    def _is_at_locked_price(self, output: Output) -> bool:
        """Return whether the output came while the price was locked and is no more than was asked for."""
        others = sum(
            o.amount
            for o in self.outputs.values()
            if o.is_in_time and o.settled is Settled.CREDITED and o.name != output.name
        )
        is_asked_for = others + output.amount <= self.invoice.price.atomic + self._rounding()
        return output.is_in_time and self._is_price_held and is_asked_for

    def _credit(self, output: Output, *, sale: int, bucket: int, is_for_price: bool) -> None:
        if not sale and not bucket and not is_for_price:
            self._keep(output)
            return
        self.acts.append(Credit(output=output.name, round=output.round, sale=sale, bucket=bucket))
        self.outputs[output.name] = replace(
            output,
            settled=Settled.CREDITED,
            sale_sats=sale,
            bucket_sats=bucket,
            is_for_price=is_for_price,
        )

    def _keep(self, output: Output) -> None:
        self.acts.append(Keep(output=output.name, round=output.round))
        self.outputs[output.name] = replace(output, settled=Settled.KEPT)

    def _reverse(self, output: Output) -> None:
        act = Reverse(
            output=output.name, round=output.round, sale=output.sale_sats, bucket=output.bucket_sats
        )
        self.acts.append(act)
        self._reopen(output)

    def _reopen(self, output: Output) -> None:
        self.outputs[output.name] = replace(
            output,
            settled=Settled.OPEN,
            sale_sats=0,
            bucket_sats=0,
            is_for_price=True,
            round=output.round + 1,
        )

    def _candidates(self) -> list[Output]:
        return [o for o in self.outputs.values() if o.is_in_time and o.is_money and o.settled is Settled.OPEN]

    def _payable(self) -> list[Output]:
        return [o for o in self._candidates() if o.is_firm(self.invoice.confirmations)]


def _open_signal(plan: _Plan, there: int) -> Signal:
    if there:
        is_speck = plan.invoice.price.sats_for(there) < plan._policy.dust_sats
        return Signal.SPECK if is_speck else Signal.SHORT
    return Signal.VANISHED if any(not o.is_there for o in plan.outputs.values()) else Signal.NOTHING


def _closed_signal(plan: _Plan, sent_back: frozenset[str]) -> Signal:
    outputs = plan.outputs.values()
    waiting = [o for o in outputs if o.settled is Settled.OPEN and o.is_money]
    if shallow := [o for o in waiting if not o.is_firm(plan.invoice.confirmations)]:
        return Signal.TOO_LATE if any(not o.is_in_time for o in shallow) else Signal.TOO_LITTLE
    if waiting:
        return Signal.NO_RATE
    if going_back := [o for o in outputs if o.settled is Settled.REFUND]:
        is_done = all(o.name in sent_back for o in going_back)
        return Signal.SENT_BACK if is_done else Signal.TO_SEND_BACK
    if any(o.settled is Settled.CREDITED for o in outputs):
        return Signal.TURNED_TO_SATS
    return Signal.SPECK if any(o.settled is Settled.KEPT for o in outputs) else Signal.TIME_OVER


def _again(output: Output, deposit: Deposit, tip: int) -> Output:
    if deposit.amount != output.amount:
        raise ChainUnavailable(
            chain=output.chain, why=f"the node says that {output.id} is another amount than it was"
        )
    return replace(
        output,
        depth=believed_depth(deposit, tip),
        block=deposit.block,
        height=deposit.height,
        is_there=not deposit.conflicted,
        is_unlocked=deposit.unlocked,
        missed=0,
    )


def _missed(output: Output) -> Output:
    return replace(output, depth=0, block=None, height=None, is_there=False, missed=min(output.missed + 1, 2))


def _first_seen(invoice: Invoice, deposit: Deposit, tip: int, *, is_in_time: bool, now: datetime) -> Output:
    return Output(
        chain=invoice.price.asset,
        txid=deposit.txid,
        output=deposit.output,
        invoice=invoice.id,
        amount=deposit.amount,
        depth=believed_depth(deposit, tip),
        block=deposit.block,
        height=deposit.height,
        is_there=not deposit.conflicted,
        is_unlocked=deposit.unlocked,
        is_in_time=is_in_time,
        first_seen_at=now,
    )


def believed_depth(deposit: Deposit, tip: int) -> int:
    """Return the depth of a deposit, at most what the height of the chain allows."""
    if deposit.height is None:
        return max(0, deposit.confirmations) if deposit.block is not None else 0
    return max(0, min(deposit.confirmations, tip - deposit.height + 1))
