"""Settling carries out one look at an invoice's address: observe, decide, act, record, in one transaction.

A crash leaves either all of it or nothing, and repeating it changes nothing, because each output's transfers
are named after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from sandboxer.accounts import records as accounts
from sandboxer.identity.key_life import KeyLife
from sandboxer.kernel.errors import Broken
from sandboxer.kernel.values import value_class
from sandboxer.money.ledger import open_account, open_platform_accounts, post_transfer
from sandboxer.money.transfers import AccountKind, Transfer
from sandboxer.payments.chains.contract import Deposit
from sandboxer.payments.credits import credit_final, external, reverse_final
from sandboxer.payments.goods import ACTOR, Goods
from sandboxer.payments.invoices import repository
from sandboxer.payments.invoices.policy import (
    Act,
    CancelRefund,
    Credit,
    Decision,
    Deliver,
    Keep,
    QueueRefund,
    Reverse,
    Withdraw,
    Worth,
    decide,
    observe,
)
from sandboxer.payments.invoices.records import (
    SENT_BACK,
    Invoice,
    InvoicePolicy,
    Output,
    Refund,
    Settled,
    next_state,
)
from sandboxer.payments.invoices.refunds import name_refund, queue_refund, withdraw_refund

SOURCE = "invoice"


@value_class
class Look:
    """What a chain showed at one address, when, and when it was looked at before."""

    deposits: Sequence[Deposit]
    tip: int
    # When it was asked. What is not there may have come since.
    now: datetime
    # When it had answered, which may be long after: a host sleeps. What is there had come by then.
    answered_at: datetime
    since: datetime
    worth: Worth | None = None


class Settling:
    def __init__(self, goods: Mapping[str, Goods], key_life: KeyLife, policy: InvoicePolicy) -> None:
        self._goods = goods
        self._key_life = key_life
        self._policy = policy

    def settle(self, conn: Connection, id: str, look: Look) -> tuple[Invoice, Decision]:
        """Bring the invoice in line with this look. Returns the invoice after it, and what was decided.

        Raises ChainUnavailable for a look that cannot be true.
        """
        invoice = repository.find(conn, id, lock=True)
        known = repository.outputs_of(conn, id)
        going = _refunds(conn, invoice, known)
        sent = frozenset(name for refund, name in going if refund.state in SENT_BACK)
        # Sent by the hot wallet: what takes the output from the chain takes these too.
        bound = frozenset(name for refund, name in going if refund.is_bound)
        since = max(look.since, invoice.created_at)
        outputs = observe(invoice, known, look.deposits, look.tip, now=look.answered_at, since=since)
        decision = decide(
            invoice,
            outputs,
            now=look.now,
            since=since,
            policy=self._policy,
            worth=look.worth,
            sent_back=sent,
            bound=bound,
        )
        return self._carry_out(conn, invoice, known, decision, look.now), decision

    def _carry_out(
        self,
        conn: Connection,
        invoice: Invoice,
        known: tuple[Output, ...],
        decision: Decision,
        now: datetime,
    ) -> Invoice:
        after = invoice
        outputs = {output.name: output for output in decision.outputs}
        for act in decision.acts:
            after = self._act(conn, after, act, outputs, now)
        repository.save_outputs(conn, known, decision.outputs)
        after = replace(
            after, state=next_state(invoice.state, decision.signal), confirm_by=decision.confirm_by
        )
        data: dict[str, Any] = {}
        if decision.acts:
            data["acts"] = [{"act": type(act).__name__, **asdict(act)} for act in decision.acts]
        if after == invoice and not data:
            if decision.outputs != known:
                repository.tell_progress(conn, invoice, now=now)
            return invoice
        data["outputs"] = [_shown(output) for output in decision.outputs]
        return repository.save(conn, invoice, after, signal=decision.signal.value, data=data, now=now)

    def _act(
        self, conn: Connection, invoice: Invoice, act: Act, outputs: Mapping[str, Output], now: datetime
    ) -> Invoice:
        goods = self._goods[invoice.buys.kind]
        match act:
            case Deliver():
                if goods.needs_account:
                    invoice = self._with_account(conn, invoice, now)
                granted = goods.deliver(conn, invoice, now=now)
                return replace(
                    invoice, is_delivered=True, deliveries=invoice.deliveries + 1, granted=dict(granted)
                )
            case Withdraw():
                goods.withdraw(conn, invoice, now=now)
                return replace(invoice, is_delivered=False, granted={})
            case Credit():
                return self._credit(conn, invoice, act, goods, now)
            case Reverse():
                _reverse(conn, invoice, act, goods, now)
            case QueueRefund():
                _queue(conn, invoice, act, outputs[act.output], now)
            case CancelRefund():
                withdraw_refund(conn, refund_id(act.output, act.round), now=now)
            case Keep():
                pass
        return invoice

    def _credit(
        self, conn: Connection, invoice: Invoice, act: Credit, goods: Goods, now: datetime
    ) -> Invoice:
        id = transfer_id(act.output, act.round)
        if act.sale:
            _post(conn, f"{id}:sale", external(SOURCE), goods.takes, act.sale, "sale", invoice.id, now)
        if act.bucket:
            invoice = self._with_account(conn, invoice, now)
            credit_final(conn, invoice.account, act.bucket, id=id, source=SOURCE, now=now, reason=invoice.id)
        return invoice

    def _with_account(self, conn: Connection, invoice: Invoice, now: datetime) -> Invoice:
        """Make sure that the account exists, and that a new one has a key to be fetched with the claim."""
        accounts.ensure(conn, invoice.account, actor=ACTOR, now=now)
        if invoice.claim_hash is None or invoice.public_key is not None:
            return invoice
        public_key = self._key_life.prepare(
            conn, invoice.account, "bought by invoice", claim_hash=invoice.claim_hash, actor=ACTOR
        )
        return replace(invoice, public_key=public_key)


def transfer_id(output: str, round: int) -> str:
    """Name the transfer that credits an output for the n-th time."""
    return f"deposit:{output}:{round}"


def refund_id(output: str, round: int) -> str:
    """Name a refund after the output it returns, so that an output is not refunded twice."""
    return name_refund(f"{output}:{round}")


def _reverse(conn: Connection, invoice: Invoice, act: Reverse, goods: Goods, now: datetime) -> None:
    id = transfer_id(act.output, act.round)
    if act.sale:
        reason = f"{invoice.id}: the chain took it back"
        _post(conn, f"{id}:sale:reversed", goods.takes, external(SOURCE), act.sale, "reversal", reason, now)
    if act.bucket:
        reverse_final(
            conn,
            invoice.account,
            act.bucket,
            id=f"{id}:reversed",
            reason=f"{invoice.id}: the chain took it back",
            now=now,
            source=SOURCE,
        )


def _post(
    conn: Connection, id: str, debit: str, credit: str, sats: int, kind: str, reason: str, now: datetime
) -> None:
    open_platform_accounts(conn, now=now)
    open_account(conn, id=external(SOURCE), kind=AccountKind.EXTERNAL, now=now)
    post_transfer(
        conn, Transfer(id=id, debit=debit, credit=credit, amount=sats, kind=kind, reason=reason, at=now)
    )


def _queue(conn: Connection, invoice: Invoice, act: QueueRefund, output: Output, now: datetime) -> None:
    if invoice.refund_address is None:
        raise Broken(why=f"{invoice.id} has nowhere to send a refund")
    queue_refund(
        conn,
        output,
        id=refund_id(act.output, act.round),
        address=invoice.refund_address,
        amount=act.amount,
        reason="late" if not output.is_in_time else "underpaid",
        now=now,
    )


def _refunds(conn: Connection, invoice: Invoice, outputs: Sequence[Output]) -> list[tuple[Refund, str]]:
    """Return each refund with the name of the output it returns; nothing is read if no output is refunded."""
    if not any(output.settled is Settled.REFUND for output in outputs):
        return []
    names = {refund_id(o.name, o.round): o.name for o in outputs}
    return [(r, names[r.id]) for r in repository.refunds_of(conn, invoice.id) if r.id in names]


def _shown(output: Output) -> dict[str, object]:
    return {
        "id": output.id,
        "amount": str(output.amount),
        "depth": output.depth,
        "is_there": output.is_there,
        "settled": output.settled.value,
    }
