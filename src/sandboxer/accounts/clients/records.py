"""A program that asks, what it asked for, and what it was allowed. They are kept for minutes, in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from datetime import datetime

from sandboxer.accounts.delegation import Cut
from sandboxer.identity.keys import Caller
from sandboxer.kernel.values import value_class
from sandboxer.wire.operations.declaration import Scope


@value_class
class Client:
    """A program. Nobody has checked its name; where it is answered tells who it is."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]


@value_class
class ClientRequest:
    """What a program asked for. `ticket` is known to the browser alone, `code` is read aloud by its user."""

    ticket: str = field(repr=False)
    code: str
    client: Client
    redirect_uri: str
    # Of PKCE: whoever exchanges the answer must know what this is the hash of.
    challenge: str
    state: str | None
    scopes: frozenset[Scope]
    ends_at: datetime


@value_class
class Consent:
    """Who allowed a request, and what of it."""

    caller: Caller
    wish: Cut
    # Raises what would refuse who allowed it by now: a key that ended since, a session that is over.
    standing: Callable[[], Awaitable[None]]


@value_class
class Grant:
    """A request that was allowed, waiting for its program to fetch the token."""

    request: ClientRequest
    consent: Consent
    ends_at: datetime


@value_class
class Token:
    """What a program sends from now on: the bearer token of a delegated key."""

    access_token: str = field(repr=False)
    scopes: frozenset[Scope]
    expires_at: datetime | None
