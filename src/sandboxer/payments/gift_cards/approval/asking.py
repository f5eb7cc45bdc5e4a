"""Asking for approval: a mail in our own outbox, a webhook in the platform's, both in the one transaction."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from sandboxer.identity.seal import Seal
from sandboxer.observe.webhooks.room import Webhooks
from sandboxer.payments.gift_cards.approval import outbox
from sandboxer.payments.gift_cards.approval.links import LINK_INFO, PATH, make_token, read_token
from sandboxer.payments.gift_cards.desk import SECRET_CONTEXT
from sandboxer.payments.gift_cards.records import Card, Redemption

KIND = "gift_card.approval_requested"


class Asking:
    def __init__(self, seal: Seal, webhooks: Webhooks, url: str) -> None:
        self._seal = seal
        self._webhooks = webhooks
        self._url = url.rstrip("/")
        self._key = seal.derive(LINK_INFO)

    def ask(self, conn: Connection, card: Card, one: Redemption, *, now: datetime) -> None:
        """Once for each redemption, however often it is called."""
        asks = card.approval
        if asks is None or one.expires_at is None:
            return
        if asks.email is not None:
            outbox.put(conn, one.id, asks.email, now=now)
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
        """The page that asks. Looking at it changes nothing: mail programs look at links too."""
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
