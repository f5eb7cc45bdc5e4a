"""One mail over SMTP, and how it went in words. The text is made here, from numbers and names of our own."""

from __future__ import annotations

import asyncio
import re
import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP

import certifi

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.gift_cards.config import MailServer
from sandboxer.payments.gift_cards.records import Kind, Redemption

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
    """Never raises for what a server does."""
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
