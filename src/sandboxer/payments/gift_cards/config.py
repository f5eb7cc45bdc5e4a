"""The terms of gift cards and the mail server, as an operator writes them. Read strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sandboxer.kernel.durations import parse_duration
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.gift_cards.records import GiftPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    host: str
    port: int
    sender: str
    # none, starttls or tls.
    tls: str = "starttls"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    # Of a private authority that signed its certificate.
    ca_file: str | None = None
    timeout_s: float = 20.0


def read_gift_policy(given: Mapping[str, Any]) -> GiftPolicy:
    """Terms that are not named keep their default."""
    known = {one.name for one in fields(GiftPolicy)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidRequest(field=f"gift_cards.{name}", why=f"known are {', '.join(sorted(known))}")
        if name == "approve_within":
            value = parse_duration(str(value), field=f"gift_cards.{name}")
        elif name == "for_sats":
            if not isinstance(value, bool):
                raise InvalidRequest(field=f"gift_cards.{name}", why="it must be true or false")
        elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidRequest(field=f"gift_cards.{name}", why="it must be a whole number, not below zero")
        values[name] = value
    return GiftPolicy(**values)
