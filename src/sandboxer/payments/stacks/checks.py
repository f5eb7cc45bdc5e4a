"""These pure checks decide whether a transaction is the payment asked for, and whether the chain accepts it.

A seller may rely only on what the payer signed: who, to whom, how much of what, on which chain.
Post-conditions are checked because a wrong one makes the chain undo a transfer that looks good.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.stacks.clarity import FtCondition, Mode, Origin, Sent
from sandboxer.payments.stacks.shop import StacksShop, Token
from sandboxer.payments.stacks.transactions import Transaction, parse_hex, verify_origin
from sandboxer.payments.stacks.transfers import StacksNetwork, Transfer, principal, read_transfer

# The reasons of the codec in x402's words; what is not here is an invalid payload.
_WORDS = {
    "signature_validation_failed": "signature_validation_failed",
    "multisig": "invalid_transaction_state",
    "unsupported_payload": "invalid_transaction_state",
    "not_a_transfer": "invalid_transaction_state",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What was asked for."""

    shop: StacksShop
    network: str
    asset: str
    pay_to: str
    amount: int
    memo: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """A checked payment. Its identity is (network, payer, nonce), because a sponsor changes its txid."""

    network: str
    payer: str
    nonce: int
    token: Token
    amount: int
    # Before sponsoring: never to be looked for on chain.
    unsponsored_txid: str
    memo: bytes = b""

    @property
    def key(self) -> str:
        return f"{self.network}:{self.payer}:{self.nonce}"


class Unpayable(Exception):
    """The transaction is not the payment asked for; `reason` is x402's code."""

    def __init__(self, reason: str, why: str, payer: str | None = None) -> None:
        super().__init__(why)
        self.reason = reason
        self.why = why
        self.payer = payer


def check_payment(hex_text: object, terms: Terms) -> Payment:
    """Raises Unpayable."""
    token = _check_terms(terms)
    transaction, transfer = _read(hex_text)
    payer = transaction.origin_address
    _check_chain(transaction, terms.shop.network)
    _check_transfer(transfer, terms, token, payer)
    _check_sponsoring(transaction, payer)
    _check_post_conditions(transaction, token, transfer.amount, payer)
    return Payment(
        network=terms.network,
        payer=payer,
        nonce=transaction.origin.nonce,
        token=token,
        amount=transfer.amount,
        unsponsored_txid=transaction.txid,
        memo=transfer.memo,
    )


def _read(hex_text: object) -> tuple[Transaction, Transfer]:
    if not isinstance(hex_text, str):
        raise Unpayable("invalid_payload", "payload.transaction is not a string")
    payer = None
    try:
        transaction = parse_hex(hex_text)
        verify_origin(transaction)
        payer = transaction.origin_address
        return transaction, read_transfer(transaction)
    except InvalidRequest as refusal:
        reason = _WORDS.get(str(refusal.facts.get("reason")), "invalid_payload")
        raise Unpayable(reason, str(refusal.facts.get("why")), payer) from None


def _check_terms(terms: Terms) -> Token:
    """Check the requirements, which come back from the payer and are not trusted."""
    if terms.network != terms.shop.network.caip2:
        raise Unpayable("invalid_network", f"paid on {terms.shop.network.caip2} here")
    token = terms.shop.token(terms.asset)
    if token is None:
        raise Unpayable("unrecognized_asset", f"{terms.asset[:90]} is not taken here")
    if terms.pay_to != terms.shop.pay_to:
        raise Unpayable("invalid_payment_requirements", "payTo is not ours")
    if terms.amount < 1:
        raise Unpayable("invalid_payment_requirements", "the amount is not above zero")
    return token


def _check_chain(transaction: Transaction, network: StacksNetwork) -> None:
    if (transaction.version, transaction.chain_id) != (network.version, network.chain_id):
        raise Unpayable(
            "invalid_network", f"it is not signed for {network.caip2}", transaction.origin_address
        )


def _check_transfer(transfer: Transfer, terms: Terms, token: Token, payer: str) -> None:
    expected = None if token.name is None else token.name.contract.text
    if transfer.contract != expected:
        raise Unpayable(
            "unrecognized_asset", f"it pays {transfer.contract or 'STX'}, not {token.wire}", payer
        )
    if transfer.sender is not None and transfer.sender != payer:
        raise Unpayable("sender_mismatch", "it moves tokens of another than who signed", payer)
    if transfer.recipient != terms.pay_to:
        raise Unpayable("recipient_mismatch", f"it pays {transfer.recipient}", payer)
    if transfer.recipient == payer:
        raise Unpayable("recipient_mismatch", "nobody can pay himself", payer)
    if transfer.amount < terms.amount:
        raise Unpayable("amount_insufficient", f"{transfer.amount} of {terms.amount}", payer)
    if terms.memo is not None and transfer.memo != terms.memo:
        raise Unpayable("invalid_payload", "the memo is not the one asked for", payer)


def _check_sponsoring(transaction: Transaction, payer: str) -> None:
    if transaction.sponsor is None:
        raise Unpayable("invalid_transaction_state", "it is not made to be sponsored (auth type 5)", payer)
    if transaction.sponsor.signed or transaction.sponsor.fee or transaction.sponsor.nonce:
        raise Unpayable("invalid_transaction_state", "its sponsor's place is taken already", payer)


def _check_post_conditions(transaction: Transaction, token: Token, amount: int, payer: str) -> None:
    state = "invalid_transaction_state"
    conditions = transaction.post_conditions
    if token.name is None:
        if conditions:
            raise Unpayable(state, "the chain refuses STX transfers with post-conditions", payer)
        return
    if transaction.mode is not Mode.DENY:
        raise Unpayable(state, "its post-condition mode is not deny", payer)
    if len(conditions) != 1 or not isinstance(conditions[0], FtCondition):
        raise Unpayable(state, "one fungible post-condition is needed, or the chain undoes it", payer)
    condition = conditions[0]
    who = condition.principal
    if not (isinstance(who, Origin) or who == principal(payer)):
        raise Unpayable(state, "its post-condition is about another than the payer", payer)
    if condition.asset != token.name:
        raise Unpayable(state, f"its post-condition is about {condition.asset.text}", payer)
    if (condition.code, condition.amount) != (Sent.EQUAL, amount):
        raise Unpayable(state, f"its post-condition does not say: exactly {amount}", payer)
