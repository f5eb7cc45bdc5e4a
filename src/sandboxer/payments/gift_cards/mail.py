"""Mails that ask for approval: rows written in the transaction of the redemption, and sent over SMTP.

A mail that fails is tried again, like a webhook. Its text is made here, from numbers and names of our own.
"""

from __future__ import annotations

import asyncio
import re
import smtplib
import ssl
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any

import certifi
from sqlalchemy import Connection, Row, func, select, update

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.ledger import insert_once
from sandboxer.observe.webhooks.lifecycle import DeliveryState, Signal, after_failure, next_state
from sandboxer.payments.gift_cards import repository
from sandboxer.payments.gift_cards.records import Kind, MailServer, Redemption, RedemptionState
from sandboxer.payments.gift_cards.repository import gift_mails
from sandboxer.store.workers import announce

MAX_ADDRESS = 254
# Plain addresses only: what does not match cannot carry a second header or a second recipient.
_ADDRESS = re.compile(
    r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)+",
    re.ASCII,
)
# The server says no for good: another try would be the same.
_PERMANENT = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    # None: the server took it.
    why_not: str | None
    is_final: bool = False


_m = gift_mails.c


@dataclass(frozen=True, slots=True, kw_only=True)
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
    message = EmailMessage(policy=SMTP)
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


async def send(server: MailServer, message: EmailMessage) -> Outcome:
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


def put(conn: Connection, redemption: str, address: str, *, now: datetime) -> None:
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


def first_due(conn: Connection, *, now: datetime) -> tuple[Mail, Redemption] | None:
    query = select(gift_mails).where(_m.due_at <= now).order_by(_m.due_at, _m.redemption).limit(1)
    row = conn.execute(query).one_or_none()
    return None if row is None else (_mail(row), repository.load_redemption(conn, row.redemption))


def next_due(conn: Connection) -> datetime | None:
    found = conn.execute(select(func.min(_m.due_at))).scalar()
    assert found is None or isinstance(found, datetime)
    return found


def find(conn: Connection, redemption: str) -> Mail | None:
    row = conn.execute(select(gift_mails).where(_m.redemption == redemption)).one_or_none()
    return None if row is None else _mail(row)


def is_wanted(one: Redemption, *, now: datetime) -> bool:
    """Return whether the redemption still waits; nobody is asked about a decided one."""
    waits = one.state is RedemptionState.PENDING_APPROVAL
    return waits and one.expires_at is not None and one.expires_at > now


def conclude(
    conn: Connection, mail: Mail, why_not: str | None, *, is_final: bool, now: datetime, chance: float
) -> None:
    """Record the result of a try."""
    due = None
    if why_not is None:
        state = next_state(mail.state, Signal.ACCEPTED)
    else:
        verdict = after_failure(mail.state, tries=mail.tries + 1, now=now, chance=chance, is_final=is_final)
        state, due = verdict.state, verdict.due_at
    values = {"state": state.value, "tries": mail.tries + 1, "reason": why_not or "", "due_at": due}
    conn.execute(update(gift_mails).where(_m.redemption == mail.redemption).values(**values))


def withdraw(conn: Connection, mail: Mail) -> None:
    state = next_state(mail.state, Signal.WITHDRAWN)
    values = {"state": state.value, "reason": "no longer asked", "due_at": None}
    conn.execute(update(gift_mails).where(_m.redemption == mail.redemption).values(**values))


def _mail(row: Row[Any]) -> Mail:
    values = row._asdict()
    return Mail(**values | {"state": DeliveryState(values["state"])})
