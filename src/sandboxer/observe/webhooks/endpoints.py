"""Keeps the endpoints of accounts, their secrets, and which kinds of events they receive.

Plain functions inside a transaction. Secrets come sealed: this package keeps them and cannot read them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Connection, Row, delete, insert, select, update

from sandboxer.kernel.addresses import Address, permitted
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.observe.events import record
from sandboxer.observe.webhooks.tables import webhook_endpoints
from sandboxer.store.rows import from_row
from sandboxer.store.workers import announce

TOPIC = "webhooks"
MAX_ENDPOINTS = 16
# How long the old secret still signs after a rotation, unless said otherwise.
OVERLAP = timedelta(hours=24)
_t = webhook_endpoints.c
# The row that holds an account's secret for one-shot messages is no endpoint.
_REAL = _t.url != ""
# Accounts in one statement.
_CHUNK = 500


@value_class
class Endpoint:
    id: str
    account: str
    url: str
    kinds: tuple[str, ...]
    hears_all: bool
    enabled: bool
    disabled_reason: str
    secret: bytes = field(repr=False)
    old_secret: bytes | None = field(repr=False)
    old_secret_until: datetime | None
    created_at: datetime

    def hears(self, kind: str, line: Sequence[str]) -> bool:
        """Says whether it receives events of the first of these accounts; the others are the accounts
        above it.
        """
        return (self.hears_all or self.account in line) and matches(self.kinds, kind)

    def secrets_at(self, now: datetime) -> list[bytes]:
        """Returns the secrets that sign at this moment, the newest first."""
        until = self.old_secret_until
        is_old_good = self.old_secret is not None and until is not None and now < until
        return [self.secret, *([self.old_secret] if is_old_good and self.old_secret else [])]


def once_id(account: str) -> str:
    """Returns the id that stands for the endpoint of messages that bring their own URL."""
    return f"once:{account}"


def is_whole(kind: str) -> bool:
    """Says whether messages of this kind have the form of somebody else's program: their data is all that is
    sent, and only endpoints that name the kind hear of it.
    """
    return kind.startswith("hub.")


def matches(kinds: Sequence[str], kind: str) -> bool:
    """Matches `*`, a kind, or all kinds that begin so (`sandbox.*`)."""
    if is_whole(kind):
        return kind in kinds
    return any(k == "*" or k == kind or (k.endswith(".*") and kind.startswith(k[:-1])) for k in kinds)


def add(conn: Connection, endpoint: Endpoint, *, actor: str) -> None:
    if len(of_account(conn, endpoint.account)) >= MAX_ENDPOINTS:
        raise Conflict(
            why=f"an account has at most {MAX_ENDPOINTS} webhooks",
            hint="Remove one, or widen its kinds: GET /v1/webhooks.",
        )
    conn.execute(insert(webhook_endpoints), _row(endpoint))
    _tell(conn, endpoint, "webhook.created", actor, "asked", endpoint.created_at)


def of_account(conn: Connection, account: str) -> list[Endpoint]:
    query = select(webhook_endpoints).where(_t.account == account, _REAL).order_by(_t.created_at, _t.id)
    return [_endpoint(row) for row in conn.execute(query)]


def find(conn: Connection, id: str) -> Endpoint | None:
    row = conn.execute(select(webhook_endpoints).where(_t.id == id)).one_or_none()
    return None if row is None else _endpoint(row)


def load(conn: Connection, account: str, id: str) -> Endpoint:
    """Returns an endpoint of this account. Raises NotFound also for those of others."""
    if (found := find(conn, id)) is None or found.account != account or not found.url:
        raise NotFound(what="webhook", id=id)
    return found


def listening(conn: Connection, accounts: Collection[str]) -> list[Endpoint]:
    """Returns the endpoints that receive events of these accounts: theirs, and those that receive
    everything.
    """
    enabled = select(webhook_endpoints).where(_t.enabled, _REAL)
    rows = list(conn.execute(enabled.where(_t.hears_all)))
    names = sorted(accounts)
    for start in range(0, len(names), _CHUNK):
        theirs = enabled.where(_t.account.in_(names[start : start + _CHUNK]), _t.hears_all.is_(False))
        rows += conn.execute(theirs)
    return sorted((_endpoint(row) for row in rows), key=lambda endpoint: endpoint.id)


def is_anyone_naming(conn: Connection, kind: str) -> bool:
    kinds = conn.execute(select(_t.kinds).where(_t.enabled, _REAL)).scalars()
    return any(kind in named for named in kinds)


def is_anyone_listening(conn: Connection) -> bool:
    return conn.execute(select(_t.id).where(_t.enabled, _REAL).limit(1)).first() is not None


def change(
    conn: Connection, before: Endpoint, changes: dict[str, Any], *, actor: str, reason: str, now: datetime
) -> Endpoint:
    """Changes columns of an endpoint, and records an event without the secrets."""
    conn.execute(update(webhook_endpoints).where(_t.id == before.id).values(**changes))
    after = find(conn, before.id)
    assert after is not None
    if after.enabled != before.enabled:
        kind = "webhook.enabled" if after.enabled else "webhook.disabled"
    else:
        kind = "webhook.changed"
    _tell(conn, after, kind, actor, reason, now)
    return after


def remove(conn: Connection, endpoint: Endpoint, *, actor: str, now: datetime) -> None:
    conn.execute(delete(webhook_endpoints).where(_t.id == endpoint.id))
    _tell(conn, endpoint, "webhook.removed", actor, "asked", now)


def rotation(old: Endpoint, sealed: bytes, *, now: datetime, overlap: timedelta) -> dict[str, Any]:
    """Returns the columns of a rotation: two secrets sign until the overlap is over."""
    return {"secret": sealed, "old_secret": old.secret, "old_secret_until": now + overlap}


def put_once_secret(
    conn: Connection, account: str, sealed: bytes, *, now: datetime, overlap: timedelta
) -> Endpoint:
    """Sets or rotates the secret that signs an account's one-shot messages."""
    if (known := find(conn, once_id(account))) is not None:
        changes = rotation(known, sealed, now=now, overlap=overlap)
        conn.execute(update(webhook_endpoints).where(_t.id == known.id).values(**changes))
    else:
        made = Endpoint(
            id=once_id(account),
            account=account,
            url="",
            kinds=(),
            hears_all=False,
            enabled=True,
            disabled_reason="",
            secret=sealed,
            old_secret=None,
            old_secret_until=None,
            created_at=now,
        )
        conn.execute(insert(webhook_endpoints), _row(made))
    found = find(conn, once_id(account))
    assert found is not None
    return found


def _tell(conn: Connection, endpoint: Endpoint, kind: str, actor: str, reason: str, at: datetime) -> None:
    announce(conn, TOPIC)
    data = {"webhook": endpoint.id, "url": endpoint.url, "kinds": list(endpoint.kinds)}
    record(conn, subject=endpoint.account, kind=kind, actor=actor, reason=reason, at=at, data=data)


def _row(endpoint: Endpoint) -> dict[str, Any]:
    return {**asdict(endpoint), "kinds": list(endpoint.kinds)}


def _endpoint(row: Row[Any]) -> Endpoint:
    return from_row(Endpoint, row, kinds=tuple(row.kinds))


MAX_URL = 2048
_CLEAN = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}")


@brief_value_class
class Target:
    url: str
    host: str
    port: int


def parse_target(url: str, *, allow_private: bool) -> Target:
    """Parses the URL of a webhook. Raises InvalidRequest saying what is wrong with it."""
    if len(url) > MAX_URL or _CLEAN.fullmatch(url) is None or "\\" in url:
        raise _wrong(f"it must be a URL of at most {MAX_URL} printable ASCII characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _wrong("it is not a URL") from None
    if parts.scheme not in (("https", "http") if allow_private else ("https",)):
        raise _wrong("it must begin with https://")
    if "@" in parts.netloc or parts.fragment or port == 0:
        raise _wrong("it must not hold a user, a password, a fragment or port 0")
    host = parts.hostname or ""
    if _HOST.fullmatch(host) is None:
        raise _wrong("it names no host (write international names in punycode)")
    literal = _literal(host)
    if literal is not None and not permitted(literal, allow_private=allow_private):
        raise _wrong(f"{host} is not a public address")
    return Target(url=url, host=host, port=port or (443 if parts.scheme == "https" else 80))


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _wrong(why: str) -> InvalidRequest:
    return InvalidRequest(field="url", why=why)
