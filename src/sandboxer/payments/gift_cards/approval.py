"""Redemptions that somebody must approve: the link, and how it is told.

Asking for approval: a mail in our own outbox, a webhook in the platform's, both in the one transaction.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from datetime import UTC, datetime

from sqlalchemy import Connection

from sandboxer.identity.seal import Seal
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.observe.webhooks.use_cases import Webhooks
from sandboxer.payments.gift_cards import mail
from sandboxer.payments.gift_cards.records import Card, Redemption
from sandboxer.payments.gift_cards.use_cases import SECRET_CONTEXT

LINK_INFO = "gift-card-approval-v1"
PATH = "/v1/gift-cards/approvals"
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
        raise NotFound(what="approval link", id="(not shown)")
    if datetime.fromtimestamp(int(found[2]), UTC) <= now:
        raise Conflict(why="the time to answer is over", reason="link_expired")
    return found[1]


def _mac(key: bytes, head: str) -> str:
    return hmac.new(key, head.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


KIND = "gift_card.approval_requested"


class Asking:
    def __init__(self, seal: Seal, webhooks: Webhooks, url: str) -> None:
        self._seal = seal
        self._webhooks = webhooks
        self._url = url.rstrip("/")
        self._key = seal.derive(LINK_INFO)

    def ask(self, conn: Connection, card: Card, one: Redemption, *, now: datetime) -> None:
        """Ask for approval of a redemption, once, however often it is called."""
        asks = card.approval
        if asks is None or one.expires_at is None:
            return
        if asks.email is not None:
            mail.put(conn, one.id, asks.email, now=now)
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
