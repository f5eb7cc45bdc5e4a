"""A program asks, somebody allows it, it fetches its token. Each step is bound to the one before.

What is under way is in memory: it lasts for minutes, and after a restart a program asks again. What comes of
it is a delegated key like any other: it is in the tree of keys, it has a budget, and it ends with its parent.
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import TypeVar

from sqlalchemy import Connection

from sandboxer.accounts import delegation, revocation
from sandboxer.accounts.authority import usual_scopes
from sandboxer.accounts.clients import policy
from sandboxer.accounts.clients.records import Client, ClientRequest, Consent, Grant, Token
from sandboxer.accounts.limits import LimitPolicy
from sandboxer.accounts.use_cases import Slots, cut_key
from sandboxer.identity.key_life import KeyLife
from sandboxer.identity.keys import BearerTokens, Keys
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import NotFound
from sandboxer.kernel.values import value_class
from sandboxer.observe.webhooks.carrier import Carrier
from sandboxer.store.engine import Store

ASKED_FOR = timedelta(minutes=10)
GRANTED_FOR = timedelta(seconds=60)
DESCRIBED_FOR = timedelta(minutes=10)
# Under way at once; the oldest gives way.
MOST = 1000
# Without letters that are taken for others.
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
T = TypeVar("T")


@value_class
class ClientDependencies:
    store: Store
    clock: Clock
    keys: Keys
    key_life: KeyLife
    bearers: BearerTokens
    slots: Slots
    carrier: Carrier
    limits: LimitPolicy
    is_charged: bool
    allow_private: bool
    # The addresses of what tokens are for; the first is its name.
    resources: tuple[str, ...]


@value_class
class Asked:
    """What a program says when it sends its user's browser to us."""

    client_id: str
    redirect_uri: str
    response_type: str | None = None
    code_challenge: str | None = None
    code_challenge_method: str | None = None
    state: str | None = None
    scope: str | None = None
    resource: str | None = None


class Clients:
    def __init__(self, dependencies: ClientDependencies) -> None:
        self._deps = dependencies
        self._secret = dependencies.keys.derived("ids of OAuth clients")
        self._requests: OrderedDict[str, ClientRequest] = OrderedDict()
        # By the ticket of its request; None is a refusal.
        self._consents: OrderedDict[str, Consent | None] = OrderedDict()
        self._grants: OrderedDict[str, Grant] = OrderedDict()
        self._described: OrderedDict[str, tuple[Client, datetime]] = OrderedDict()

    def register(self, document: object) -> Client:
        """Gives an id to a program that describes itself (for programs without a document of their own)."""
        client = policy.described(document)
        made = policy.registered(client, self._secret)
        return Client(id=made, name=client.name, redirect_uris=client.redirect_uris)

    async def client(self, client_id: str, redirect_uri: str) -> Client:
        """Returns the program, if it is answered there. Raises InvalidRequest: nobody is sent there."""
        found = policy.read_registered(client_id, self._secret)
        if found is None and policy.is_document(client_id):
            found = await self._by_document(client_id)
        if found is None:
            raise policy.wrong("invalid_client", "client_id", "no such client is known")
        policy.demand_redirect(redirect_uri)
        if not policy.is_redirect_of(found, redirect_uri):
            raise policy.wrong("invalid_request", "redirect_uri", "this client is not answered there")
        return found

    async def _by_document(self, client_id: str) -> Client:
        policy.demand_document(client_id, allow_private=self._deps.allow_private)
        now = self._deps.clock.now()
        if (known := self._described.get(client_id)) is not None and known[1] > now:
            return known[0]
        content = await self._deps.carrier.fetch(client_id)
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            document = None
        client = policy.described(document, client_id)
        _keep(self._described, client_id, (client, now + DESCRIBED_FOR))
        return client

    def ask(self, client: Client, asked: Asked) -> ClientRequest:
        """Keeps what a known program asks for, until somebody answers. Raises InvalidRequest."""
        if asked.response_type != "code":
            raise policy.wrong("unsupported_response_type", "response_type", "only `code` is answered")
        policy.demand_resource(asked.resource, self._deps.resources)
        letters = "".join(secrets.choice(_LETTERS) for _ in range(8))
        request = ClientRequest(
            ticket=secrets.token_urlsafe(32),
            code=f"{letters[:4]}-{letters[4:]}",
            client=client,
            redirect_uri=asked.redirect_uri,
            challenge=policy.demand_challenge(asked.code_challenge, asked.code_challenge_method),
            state=asked.state,
            scopes=policy.wanted_scopes(asked.scope, usual_scopes(0)),
            ends_at=self._deps.clock.now() + ASKED_FOR,
        )
        _keep(self._requests, request.ticket, request)
        return request

    def by_code(self, code: str) -> ClientRequest:
        """Returns the request that this code was shown for. Raises NotFound."""
        now = self._deps.clock.now()
        for request in self._requests.values():
            is_open = request.ticket not in self._consents and request.ends_at > now
            if is_open and secrets.compare_digest(request.code, code):
                return request
        raise NotFound(what="request of a program", id=code, hint="It lasts for ten minutes; ask again.")

    def answer(self, request: ClientRequest, consent: Consent | None) -> None:
        """Allows a request, or refuses it."""
        _keep(self._consents, request.ticket, consent)

    def outcome(self, ticket: str) -> tuple[ClientRequest, str | None, bool]:
        """Returns a request, the code that its program exchanges, and whether it was refused. The code is
        given once. Raises NotFound.
        """
        now = self._deps.clock.now()
        request = self._requests.get(ticket)
        if request is None or request.ends_at <= now:
            self._requests.pop(ticket, None)
            raise NotFound(what="request of a program", id="this one", hint="Begin again in your program.")
        if ticket not in self._consents:
            return request, None, False
        consent = self._consents.pop(ticket)
        del self._requests[ticket]
        if consent is None:
            return request, None, True
        code = secrets.token_urlsafe(32)
        _keep(self._grants, code, Grant(request=request, consent=consent, ends_at=now + GRANTED_FOR))
        return request, code, False

    async def exchange(
        self, *, code: str, client_id: str, redirect_uri: str, verifier: str, resource: str | None
    ) -> Token:
        """Makes the key that was allowed, and its token. A code is used up by the first who brings it.
        Raises InvalidRequest, and what refuses who allowed it.
        """
        grant, now = self._grants.pop(code, None), self._deps.clock.now()
        policy.demand_resource(resource, self._deps.resources)
        if grant is None or grant.ends_at <= now:
            raise policy.wrong("invalid_grant", "code", "it is unknown, or was used, or is over")
        asked = grant.request
        if (asked.client.id, asked.redirect_uri) != (client_id, redirect_uri):
            raise policy.wrong("invalid_grant", "code", "it was given to another client")
        if not policy.is_verified(asked.challenge, verifier):
            raise policy.wrong("invalid_grant", "code_verifier", "it is not what the challenge was made of")
        await grant.consent.standing()
        deps, who = self._deps, grant.consent.caller
        made, _ = await cut_key(
            deps.store,
            deps.keys,
            deps.slots,
            who,
            grant.consent.wish,
            now=now,
            is_charged=deps.is_charged,
            policy=deps.limits,
        )
        token = await deps.key_life.issue_bearer(
            made.public_key, account=made.account, actor=f"key:{who.public_key}"
        )
        return Token(access_token=token, scopes=made.scopes, expires_at=made.expires_at)

    async def end(self, token: str) -> None:
        """Ends a program's key by its token. Any other token stays."""
        caller = await self._deps.bearers.authenticate(token)
        now = self._deps.clock.now()

        def end(conn: Connection) -> tuple[str, ...]:
            if not delegation.is_delegated(conn, caller.public_key):
                return ()
            actor = f"key:{caller.public_key}"
            ended = revocation.revoke(conn, caller.account, actor=actor, reason="asked", now=now)
            return tuple(ended.public_keys)

        for one in await self._deps.store.write(end):
            self._deps.keys.forget(one)


def _keep(kept: OrderedDict[str, T], name: str, value: T) -> None:
    kept[name] = value
    while len(kept) > MOST:
        kept.popitem(last=False)
