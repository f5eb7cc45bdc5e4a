"""Asks somebody to approve a redemption: by a mail in our own outbox, a webhook in the platform's, or both.
They carry the link that approves or denies, and are written in the transaction of the redemption.

A mail is sent over SMTP; one that fails is tried again, like a webhook. Its text is made here, from numbers
and names of our own.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, func, select, update

from sandboxer.identity.seal import Seal
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound
from sandboxer.kernel.program import late
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.money.ledger import insert_once
from sandboxer.observe.webhooks.lifecycle import DeliveryState, Signal, after_failure, next_state
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.payments.gift_cards import repository
from sandboxer.payments.gift_cards.records import Card, MailServer, Redemption, RedemptionState
from sandboxer.payments.invoices.records import Kind
from sandboxer.payments.tables import gift_mails
from sandboxer.store.rows import from_row
from sandboxer.store.workers import announce

if TYPE_CHECKING:
    import smtplib
    from email import policy

    import certifi
else:
    certifi, smtplib, policy = late("certifi"), late("smtplib"), late("email.policy")

SECRET_CONTEXT = "gift-approval"
LINK_INFO = "gift-card-approval-v1"
PATH = "/v1/gift-cards/approvals"
KIND = "gift_card.approval_requested"
REDEEM_AGAIN = "The amount is on the card again: redeem it again, and answer the new link in time."
_m = gift_mails.c
MAX_ADDRESS = 254
# Plain addresses only: what does not match cannot carry a second header or a second recipient.
_ADDRESS = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+",
    re.ASCII,
)
# The server says no for good: another try would be the same.
_PERMANENT = 500
_FORM = re.compile(r"(rdm_[0-9a-hjkmnp-tv-z]{26})\.([0-9]{1,12})\.([0-9a-f]{64})", re.ASCII)


def make_token(key: bytes, redemption: str, expires_at: datetime) -> str:
    head = f"{redemption}.{int(expires_at.timestamp())}"
    return f"{head}.{_mac(key, head)}"


def read_token(key: bytes, token: str, *, now: datetime) -> str:
    """Return the redemption of a token.

    Raises NotFound for one we did not make, Conflict for an expired one.
    """
    found = _FORM.fullmatch(token)
    head = token.rpartition(".")[0]
    if found is None or not hmac.compare_digest(_mac(key, head), found[3]):
        raise NotFound(what="approval link", id="(not shown)", hint="Copy the whole link from the message.")
    if datetime.fromtimestamp(int(found[2]), UTC) <= now:
        raise Conflict(why="the time to answer is over", reason="link_expired", hint=REDEEM_AGAIN)
    return found[1]


def _mac(key: bytes, head: str) -> str:
    return hmac.new(key, head.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


class Asking:
    def __init__(self, seal: Seal, webhooks: Webhooks, url: str) -> None:
        self._seal = seal
        self._webhooks = webhooks
        self._url = url.rstrip("/")
        self._key = seal.derive(LINK_INFO)

    def ask(self, conn: Connection, card: Card, one: Redemption, *, now: datetime) -> None:
        """Ask for approval of a redemption, once, however often it is called."""
        if (asks := card.approval) is None or one.expires_at is None:
            return
        if asks.email is not None:
            put_mail(conn, one.id, asks.email, now=now)
        if asks.webhook is not None:
            link = self.link(one)
            self._webhooks.enqueue(
                conn,
                account=card.account or card.id,
                kind=KIND,
                url=asks.webhook,
                payload={
                    "card": card.id,
                    "redemption": one.id,
                    "cents": one.cents,
                    "buys": one.kind.value,
                    "tier": one.tier,
                    "months": one.months,
                    "page": link,
                    "approve": f"{link}/approve",
                    "deny": f"{link}/deny",
                    "expires_at": one.expires_at.isoformat(),
                },
                id=one.id,
                now=now,
                secret=self._secret(card),
            )

    def link(self, one: Redemption) -> str:
        """Return the link to the page that asks.

        Opening it changes nothing, as mail programs open links too.
        """
        if one.expires_at is None:
            return ""
        return f"{self._url}{PATH}/{make_token(self._key, one.id, one.expires_at)}"

    def read(self, token: str, *, now: datetime) -> str:
        """Raises NotFound, Conflict."""
        return read_token(self._key, token, now=now)

    def _secret(self, card: Card) -> str | None:
        if card.approval_secret is None:
            return None
        return self._seal.open(card.approval_secret, context=f"{SECRET_CONTEXT}:{card.id}").decode()


@brief_value_class
class Outcome:
    # None: the server took it.
    why_not: str | None
    is_final: bool = False


@value_class
class Mail:
    redemption: str
    address: str
    state: DeliveryState
    tries: int
    reason: str
    created_at: datetime
    due_at: datetime | None


def check_address(text: str, *, field: str = "email") -> str:
    """Raises InvalidRequest for what is not one plain address."""
    if len(text) > MAX_ADDRESS or _ADDRESS.fullmatch(text) is None:
        raise InvalidRequest(field=field, why="it must be one plain e-mail address, like me@example.org")
    return text


def compose(server: MailServer, address: str, one: Redemption, link: str) -> EmailMessage:
    buys = f"tier {one.tier} for {one.months} months" if one.kind is Kind.TIER else "sats"
    message = EmailMessage(policy=policy.SMTP)
    message["From"] = server.sender
    message["To"] = check_address(address)
    message["Subject"] = f"Approve {dollars(one.cents)} of a gift card?"
    message["Message-ID"] = f"<{one.id}@{server.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(
        f"Somebody wants to redeem {dollars(one.cents)} of a gift card that asks for your approval.\n"
        f"It would buy: {buys}.\n\n"
        f"Look at it, and approve or deny it:\n{link}\n\n"
        f"The link works once, until {one.expires_at:%Y-%m-%d %H:%M} UTC. Without an answer nothing is"
        " redeemed and the amount stays on the card.\n"
    )
    return message


def dollars(cents: int) -> str:
    return f"${cents // 100}.{cents % 100:02}"


async def send_mail(server: MailServer, message: EmailMessage) -> Outcome:
    """Send one mail. It never raises for what the mail server does."""
    try:
        await asyncio.to_thread(_send, server, message)
    except smtplib.SMTPRecipientsRefused as error:
        code, said = next(iter(error.recipients.values()))
        return Outcome(f"the recipient was refused: {code} {_words(said)}", is_final=code >= _PERMANENT)
    except smtplib.SMTPResponseException as error:
        return Outcome(f"{error.smtp_code} {_words(error.smtp_error)}")
    except (smtplib.SMTPException, OSError) as error:
        return Outcome(f"{type(error).__name__}: {error}")
    return Outcome(None)


def _send(server: MailServer, message: EmailMessage) -> None:
    trust = ssl.create_default_context(cafile=server.ca_file or certifi.where())
    if server.tls == "tls":
        talk: smtplib.SMTP = smtplib.SMTP_SSL(
            server.host, server.port, timeout=server.timeout_s, context=trust
        )
    else:
        talk = smtplib.SMTP(server.host, server.port, timeout=server.timeout_s)
    with talk:
        if server.tls == "starttls":
            talk.starttls(context=trust)
        if server.user is not None and server.password is not None:
            talk.login(server.user, server.password)
        talk.send_message(message)


def _words(said: bytes | str) -> str:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return " ".join(text.split())[:200]


def put_mail(conn: Connection, redemption: str, address: str, *, now: datetime) -> None:
    row = {
        "redemption": redemption,
        "address": address,
        "state": DeliveryState.PENDING.value,
        "tries": 0,
        "reason": "",
        "created_at": now,
        "due_at": now,
    }
    insert_once(conn, gift_mails, row)
    announce(conn, repository.TOPIC)


def first_due_mail(conn: Connection, *, now: datetime) -> tuple[Mail, Redemption] | None:
    query = select(gift_mails).where(_m.due_at <= now).order_by(_m.due_at, _m.redemption).limit(1)
    row = conn.execute(query).one_or_none()
    return None if row is None else (_mail(row), repository.load_redemption(conn, row.redemption))


def next_mail_due(conn: Connection) -> datetime | None:
    found = conn.execute(select(func.min(_m.due_at))).scalar()
    assert found is None or isinstance(found, datetime)
    return found


def is_wanted(one: Redemption, *, now: datetime) -> bool:
    """Return whether the redemption still waits; nobody is asked about a decided one."""
    waits = one.state is RedemptionState.PENDING_APPROVAL
    return waits and one.expires_at is not None and one.expires_at > now


def conclude_mail(conn: Connection, mail: Mail, outcome: Outcome, *, now: datetime, chance: float) -> None:
    """Record the result of a try."""
    due, tries = None, mail.tries + 1
    if outcome.why_not is None:
        state = next_state(mail.state, Signal.ACCEPTED)
    else:
        verdict = after_failure(mail.state, tries=tries, now=now, chance=chance, is_final=outcome.is_final)
        state, due = verdict.state, verdict.due_at
    _save(conn, mail, state=state.value, tries=tries, reason=outcome.why_not or "", due_at=due)


def withdraw_mail(conn: Connection, mail: Mail) -> None:
    state = next_state(mail.state, Signal.WITHDRAWN)
    _save(conn, mail, state=state.value, reason="no longer asked", due_at=None)


def _save(conn: Connection, mail: Mail, **values: Any) -> None:
    conn.execute(update(gift_mails).where(_m.redemption == mail.redemption).values(**values))


def _mail(row: Row[Any]) -> Mail:
    return from_row(Mail, row, state=DeliveryState(row.state))
