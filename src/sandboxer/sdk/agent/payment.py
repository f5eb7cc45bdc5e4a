"""How a run pays: by x402, by invoice, or with a gift card. Each way is four acts: what is to be paid,
send it, wait for the chain, fetch the key.

What moves money is signed once, written down, and only then sent. After a crash the same bytes are sent
again; nothing here signs a second payment while the first could still be used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from typing import Any, Protocol

from sandboxer.sdk.agent.line import HeldUp, Line
from sandboxer.sdk.agent.progress import Bill, Key, Payment, Price, Progress, Step, Way
from sandboxer.sdk.agent.steps import SETTLED, Blocked, Blocker, Done, Kept, Outcome, paid_for
from sandboxer.sdk.signed_texts import Form, fault_of

# A look at the chain changes nothing sooner.
POLL_S = 1.0
_INVOICE_PAID = frozenset({"paid", "over", "credited"})
_INVOICE_WRONG = frozenset({"underpaid", "refund_due", "refunded", "dust"})
_UNDER_WAY = frozenset({"queued", "broadcasting", "settlement_pending", "mempool"})
_HARDEST_BITS = 28
# How a platform answers a stranger's request that makes sense.
_ASKS_WHO_PAYS = (401, 402)


class WalletLocked(Exception):
    """The wallet does not sign: it is locked, what is asked is beyond its caps, or no text for it to sign."""


class NotBroadcast(Exception):
    """The network did not take a transaction, or nobody was there to take it."""


class X402Wallet(Protocol):
    def sign_payment(self, required: Mapping[str, Any]) -> str:
        """Returns the header that pays one of the offers. Raises WalletLocked."""

    def sign_text(self, text: str) -> str:
        """Returns the wallet's signature, by which it signs in. Raises WalletLocked."""


@dataclass(frozen=True, slots=True)
class Signed:
    txid: str
    raw: str


class CoinWallet(Protocol):
    def prepare(self, address: str, atomic: int) -> Signed:
        """Returns a signed transaction that is not sent. Raises WalletLocked, NotBroadcast."""

    def broadcast(self, signed: Signed) -> None:
        """Sends it; sending it twice is harmless. Raises NotBroadcast."""


def why_not_sold(progress: Progress, price: Price) -> str | None:
    """Says why the way to pay that was asked for is of no use here."""
    if paid_for(progress) is not None:
        return None
    order = progress.order
    if order.way is Way.X402 and not price.networks:
        return "the platform takes no payments by x402 now"
    if order.way is Way.INVOICE and order.coin not in price.coins:
        return f"the platform gives out no invoices in {order.coin}; in {', '.join(price.coins) or 'nothing'}"
    if order.way is Way.GIFT_CARD and not order.gift_code:
        return "no code of a gift card was given"
    return None


def demand_possible(line: Line, progress: Progress, child: Mapping[str, Any]) -> None:
    """Asks as a stranger for what the child shall be, which makes nothing, and is refused where it makes no
    sense. Raises HeldUp. Says nothing of what only an account may use, as a published image.
    """
    if paid_for(progress) is None and not str(child.get("image")).startswith("img_"):
        anyones = {name: value for name, value in child.items() if name != "inception"}
        line.ask("POST", "/v1/sandboxes", anyones, also=_ASKS_WHO_PAYS, is_signed=False)


def bill(line: Line, progress: Progress) -> Outcome:
    key, sats = progress.id_for("bill", Step.CREATE_INVOICE), progress.order.budget_sats
    match progress.order.way:
        case Way.GIFT_CARD:
            return Done({"bill": Bill(sats=sats, id=key)}, "a gift card")
        case Way.INVOICE:
            body = {"currency": progress.order.coin, "sats": sats}
            made = line.ask(
                "POST", "/v1/invoices", body, headers={"idempotency-key": key}, is_signed=False
            ).json
            asked = Bill(
                sats=made["sats"],
                id=made["id"],
                address=made["address"],
                atomic=made["atomic"],
                expires_at=made["expires_at"],
                claim=made["claim"],
            )
            return Done({"bill": asked}, f"{made['amount']} {made['currency']} to {asked.address}")
        case _:
            reply = line.ask("POST", "/v1/topups", {"sats": sats}, also=(402,), is_signed=False)
            offers = reply.headers.get("payment-required")
            if offers is None:
                return Blocked(Blocker.NO_WAY_TO_PAY, "the platform offers nothing that x402 could pay")
            return Done({"bill": Bill(sats=sats, id=key, offers=offers)}, f"offers for {sats} sats")


def send(
    line: Line, progress: Progress, wallet: X402Wallet | None, coins: CoinWallet | None, now: float
) -> Outcome:
    try:
        match progress.order.way:
            case Way.X402:
                # What was signed is over when it is by both clocks: the platform may lie about its own.
                return _send_x402(line, progress, wallet, now + min(progress.clock_offset_s, 0.0))
            case Way.INVOICE:
                return _send_coins(line, progress, coins)
            case _:
                return _redeem(line, progress)
    except WalletLocked as error:
        return Blocked(Blocker.LOCKED_WALLET, str(error))
    except NotBroadcast as error:
        return Blocked(Blocker.FAILED_BROADCAST, str(error))


def _send_x402(line: Line, progress: Progress, wallet: X402Wallet | None, now: float) -> Outcome:
    asked, paid = progress.bill, progress.payment
    assert asked is not None
    if paid is None or paid.signed is None:
        if wallet is None:
            raise WalletLocked("no wallet was given that could sign a payment")
        header = wallet.sign_payment(_decoded(asked.offers or ""))
        signed = Payment(signed=header, valid_until=_valid_until(header))
        return Kept({"payment": signed}, "signed a payment")
    if paid.id is not None and _x402_state(line, paid.id) in {*_UNDER_WAY, "confirmed", "doubted"}:
        return Done({"payment": replace(paid, is_sent=True)}, "the platform has the payment")
    head = {"payment-signature": paid.signed, "idempotency-key": asked.id}
    reply = line.ask(
        "POST",
        "/v1/topups",
        {"sats": asked.sats},
        headers=head,
        also=(402,),
        waits_s=60,
        is_signed=False,
    )
    if reply.status == 402:
        return _not_taken(paid, reply.json, now)
    said = reply.json
    sent = replace(paid, is_sent=True, id=said["payment"]["id"], state=None)
    changes: dict[str, Any] = {"payment": sent}
    if said.get("key") is not None:
        # Shown once, in the answer to the very request that brought the payment.
        changes["key"] = Key(public_key=said["key"]["public_key"], secret_key=said["key"]["secret_key"])
    return Done(changes, f"sent {sent.id}")


def _not_taken(paid: Payment, problem: Mapping[str, Any], now: float) -> Blocked:
    why = str(problem.get("detail") or "the platform did not take the payment")
    if paid.valid_until is not None and now > paid.valid_until:
        return Blocked(Blocker.EXPIRED_INVOICE, f"what was signed is over: {why}")
    return Blocked(Blocker.FAILED_BROADCAST, why)


def _send_coins(line: Line, progress: Progress, coins: CoinWallet | None) -> Outcome:
    asked, paid = progress.bill, progress.payment
    assert asked is not None
    if coins is None:
        raise WalletLocked(f"no wallet was given that could pay {progress.order.coin}")
    if paid is None or paid.signed is None or paid.txid is None:
        if line.ask("GET", f"/v1/invoices/{asked.id}", is_signed=False).json["state"] == "expired":
            return Blocked(Blocker.EXPIRED_INVOICE, f"{asked.id} ended at {asked.expires_at}")
        assert asked.address is not None
        made = coins.prepare(asked.address, int(asked.atomic or 0))
        return Kept({"payment": Payment(signed=made.raw, txid=made.txid)}, f"signed {made.txid}")
    coins.broadcast(Signed(paid.txid, paid.signed))
    return Done({"payment": replace(paid, is_sent=True, id=asked.id)}, f"sent {paid.txid}")


def _redeem(line: Line, progress: Progress) -> Outcome:
    asked = progress.bill
    assert asked is not None
    body: dict[str, Any] = {"code": progress.order.gift_code, "request_id": asked.id}
    reply = line.ask("POST", "/v1/gift-cards/redeem", body, also=(428,), is_signed=False)
    if reply.status == 428:
        facts = reply.json.get("facts") or reply.json
        body["work"] = {
            "challenge": facts["challenge"],
            "solution": _solved(facts["challenge"], facts["bits"]),
        }
        reply = line.ask("POST", "/v1/gift-cards/redeem", body, is_signed=False)
    said = reply.json
    claimed = replace(asked, claim=said["claim"] or asked.claim)
    sent = Payment(is_sent=True, id=said["id"], public_key=said["public_key"])
    return Done({"payment": sent, "bill": claimed}, f"redeemed {said['cents']} cents")


def poll(line: Line, progress: Progress) -> Outcome:
    paid = progress.payment
    assert paid is not None
    assert paid.id is not None
    match progress.order.way:
        case Way.X402:
            return _poll_x402(line, paid, paid.id)
        case Way.INVOICE:
            return _poll_invoice(line, paid, paid.id)
        case _:
            return _poll_redemption(line, paid, paid.id)


def _poll_x402(line: Line, paid: Payment, id: str) -> Outcome:
    state = _x402_state(line, id)
    if state == "confirmed":
        return Done({"payment": replace(paid, state=SETTLED)}, "confirmed")
    if state == "doubted" or (paid.state in ("mempool", "doubted") and state not in _UNDER_WAY):
        return _reversed(paid, f"{id} was on its way and is {state} now")
    if state in _UNDER_WAY:
        return Kept({"payment": replace(paid, state=state)}, pause_s=POLL_S)
    sent_no_more = replace(paid, is_sent=False)
    return Blocked(Blocker.REVERSED_CONFIRMATION, f"{id} is {state}", changes={"payment": sent_no_more})


def _poll_invoice(line: Line, paid: Payment, id: str) -> Outcome:
    said = line.ask("GET", f"/v1/invoices/{id}", is_signed=False).json
    state = said["state"]
    if state in _INVOICE_PAID:
        return Done({"payment": replace(paid, state=SETTLED, public_key=said["public_key"])}, state)
    if state in ("reorged", "double_spent") or (state == "awaiting" and paid.state in ("seen", "confirming")):
        return _reversed(paid, f"the chain showed the payment of {id}, and does not now")
    if state in _INVOICE_WRONG:
        return Blocked(Blocker.NO_MONEY, f"{id} is {state}: {said['received']} came of {said['amount']}")
    if state == "expired":
        return _reversed(paid, f"{id} ended, and the payment was not seen")
    return Kept({"payment": replace(paid, state=state)}, pause_s=POLL_S)


def _poll_redemption(line: Line, paid: Payment, id: str) -> Outcome:
    said = line.ask("GET", f"/v1/gift-cards/redemptions/{id}", is_signed=False).json
    if said["state"] == "granted":
        return Done({"payment": replace(paid, state=SETTLED, public_key=said["public_key"])}, "granted")
    if said["state"] == "pending_approval":
        return Kept({"payment": replace(paid, state=said["state"])}, pause_s=POLL_S)
    return Blocked(Blocker.REFUSED, f"the gift card's redemption is {said['state']}: {said['reason']}")


def _reversed(paid: Payment, why: str) -> Blocked:
    """It is sent again as it was; the platform takes the same payment once."""
    return Blocked(
        Blocker.REVERSED_CONFIRMATION, why, changes={"payment": replace(paid, is_sent=False, state=None)}
    )


def lost_again(line: Line, progress: Progress) -> Blocked | None:
    """Says whether the money is missing because the chain took the payment back after it was confirmed."""
    paid = progress.payment
    if paid is None or paid.id is None or progress.order.way is Way.GIFT_CARD:
        return None
    if progress.order.way is Way.INVOICE:
        state = line.ask("GET", f"/v1/invoices/{paid.id}", is_signed=False).json["state"]
        is_settled = state in _INVOICE_PAID
    else:
        is_settled = (state := _x402_state(line, paid.id)) == "confirmed"
    return None if is_settled else _reversed(paid, f"{paid.id} was confirmed and is {state} now")


def receive(line: Line, progress: Progress, wallet: X402Wallet | None, now: float) -> Outcome:
    """Fetches the secret of the key; the second time it asks for a new one."""
    is_again = Blocker.LOST_KEY in progress.tries
    try:
        if progress.order.way is Way.X402:
            if not is_again:
                why = "the answer that showed the key did not arrive"
                return Blocked(Blocker.LOST_KEY, why)
            return _sign_in(line, wallet, now)
        asked, paid = progress.bill, progress.payment
        assert asked is not None
        assert paid is not None
        if paid.public_key is None or asked.claim is None:
            return Blocked(Blocker.LOST_KEY, "the payment opened no account whose secret could be fetched")
        body = {"claim": asked.claim, "regenerate": is_again}
        said = line.ask("POST", f"/v1/keys/{paid.public_key}/reveal", body, is_signed=False).json
    except HeldUp as held:
        if held.status in (401, 403, 404, 409) and held.blocked.blocker is not Blocker.RACE:
            return Blocked(Blocker.LOST_KEY, held.blocked.why)
        raise
    except WalletLocked as error:
        return Blocked(Blocker.LOCKED_WALLET, str(error))
    return Done({"key": Key(public_key=said["public_key"], secret_key=said["secret_key"])}, "received a key")


def _sign_in(line: Line, wallet: X402Wallet | None, now: float) -> Outcome:
    """The wallet that paid signs in: the session is as good as the key for this run, and can be had again."""
    if wallet is None:
        return Blocked(Blocker.LOST_KEY, "no wallet was given that could sign in")
    asked = line.ask("POST", "/v1/auth/challenge", is_signed=False).json
    text, nonce = str(asked["message"]), str(asked["nonce"])
    if (fault := fault_of(text, Form.SIGN_IN, nonce=nonce, now=now, url=line.url)) is not None:
        raise WalletLocked(fault)
    body = {"nonce": nonce, "signature": wallet.sign_text(text)}
    session = line.ask("POST", "/v1/auth/session", body, is_signed=False).json
    return Done({"key": Key(public_key="", secret_key="", session=session["token"])}, "the wallet signed in")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def moment(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


def seconds_until(text: str | None, now: float) -> float | None:
    at = moment(text)
    return None if at is None else at - now


def _x402_state(line: Line, id: str) -> str:
    return str(line.ask("GET", f"/v1/payments/{id}", is_signed=False).json["state"])


def _decoded(header: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.b64decode(header, validate=True))
    except (binascii.Error, ValueError):
        found = None
    return found if isinstance(found, dict) else {}


def _valid_until(header: str) -> int | None:
    """Until when the authorization in a signed payment can be used, where the scheme has such a moment."""
    inner: Any = _decoded(header).get("payload")
    until = str((inner.get("authorization") or {}).get("validBefore") if isinstance(inner, dict) else "")
    return int(until) if until.isdecimal() else None


def _solved(challenge: str, bits: int) -> str:
    if not 0 <= bits <= _HARDEST_BITS:
        raise HeldUp(Blocked(Blocker.REFUSED, f"a proof of work of {bits} bits was asked for"))
    for number in count():
        digest = hashlib.sha256(f"{challenge}:{number}".encode()).digest()
        if int.from_bytes(digest) >> (256 - bits) == 0:
            return str(number)
    raise AssertionError("numbers do not end")
