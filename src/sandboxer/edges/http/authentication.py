"""Authenticates every request. Raw ASGI, in front of every route: the head is judged before the body is read.

A request identifies its caller by a signature, by a key's bearer token, by the token of a wallet session, or
by SIGN-IN-WITH-X. Then it is counted, and the scope of a delegated key is checked.

A body takes effect only if it is the one that was signed. Ordinary bodies are read and checked completely
before the route runs. Uploads stream through a check that never delivers the last piece of a wrong body, and
the routes that take them act only at a clean end.

How much structure a large body has is counted as it arrives (`Shape`), before anybody parses it as JSON.
"""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandboxer.access.connections import Slot
from sandboxer.accounts.authority import INSIDE, demand_active, demand_invited, demand_needs
from sandboxer.accounts.limits import Sender, client_address, is_trusted, quotas
from sandboxer.agents.inception.grants import demand_network
from sandboxer.edges.front.http import SLOT
from sandboxer.edges.http import problems
from sandboxer.edges.http.disconnection import (
    ClientGone,
    Standing,
    may_last,
    serve_while_standing,
    standing_of,
)
from sandboxer.edges.http.matcher import name_path, operation_of
from sandboxer.edges.http.operator_audit import audit_operation
from sandboxer.edges.http.sandbox_tokens import OF_SANDBOXES, by_sandbox_token
from sandboxer.identity.authenticate import EMPTY_SHA256, MAX_V1_BODY, BodyCheck, Verdict
from sandboxer.identity.keys import PREFIX as BEARER_PREFIX
from sandboxer.identity.keys import Caller, demand_privacy
from sandboxer.identity.sessions.tokens import HEADER, session_token, token_in
from sandboxer.kernel.budget import SMALL, Lease, Shape
from sandboxer.kernel.errors import SandboxerError, Unauthenticated
from sandboxer.wire.operations.declaration import Access, AnyOperation, RateClass, Stream
from sandboxer.wiring import Platform

CALLER = "sandboxer.caller"
# Set if a request without credentials is let through: to learn what it costs, or to act for nobody.
STRANGER = "sandboxer.stranger"
# Who a door of ours has identified already, and asks for. A value of this process: no request can bring it.
KNOWN = "sandboxer.known"
# The memory that this request holds; released when it is answered.
LEASE = "sandboxer.lease"
STRANGERS = "strangers"
SIGN_IN = b"sign-in-with-x"
SESSION_MARK = HEADER.encode()
BEARER_MARK = b" " + BEARER_PREFIX.encode()
_OF_OTHERS = frozenset({b"authorization", b"x-signature", b"x-api-key"})
_CREDENTIALS = frozenset(
    {b"authorization", b"x-api-key", b"x-signature", b"x-timestamp", b"x-nonce", b"sign-in-with-x"}
)
# Enough for the largest stdin of a command, as base 64 in JSON.
MAX_BODY = 12 * 1024 * 1024
# For callers who are not known.
MAX_UNSIGNED_BODY = 64 * 1024
BODY_TIMEOUT_S = 60.0
# If a body takes longer than this to arrive, its credentials are checked again.
HELD_BACK_S = 0.05
UPLOAD_PAUSE_S = 60.0
# The slowest average rate of an upload from its second minute on.
UPLOAD_PATIENCE_S = 60.0
UPLOAD_SLOWEST = 16 * 1024


class Authentication:
    def __init__(self, app: ASGIApp, platform: Platform) -> None:
        self._app = app
        self._platform = platform
        self._is_by_invitation = platform.settings.is_by_invitation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        with self._platform.budget.lease(STRANGERS) as lease:
            scope[LEASE] = lease
            await lease.metered(self._serve(scope, receive, send))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if (access := _access(scope)) in (Access.UNSIGNED, Access.LOOPBACK):
                receive = await self._admit_anyone(scope, receive)
            elif access in (Access.PAYABLE, Access.EITHER) and _names_nobody(scope) and not _is_known(scope):
                receive = await self._admit_anyone(scope, receive)
                scope[STRANGER] = True
            else:
                receive = await self._admit(scope, receive)
        except SandboxerError as error:
            reason = str(error.facts.get("reason", error.code))
            self._platform.metrics.refused_signatures.labels(reason).inc()
            await _refuse(error, scope, receive, send)
            return
        except problems.TooSlow:
            await problems.too_slow(scope)(scope, receive, send)
            return
        if CALLER not in scope:
            await self._app(scope, receive, send)
            return
        try:
            await name_path(self._platform, scope, scope[CALLER])
            await audit_operation(self._platform, scope, scope[CALLER])
        except SandboxerError as error:
            await _refuse(error, scope, receive, send)
            return
        standing = self._standing(scope, scope[CALLER])
        is_upload = scope["type"] == "http" and _is_upload(scope)
        if is_upload:
            receive = _standing_at_its_end(receive, standing)
        lasts = is_upload or may_last(scope)
        await serve_while_standing(self._app, scope, receive, send, standing, from_start=lasts)

    def _standing(self, scope: Scope, caller: Caller) -> Standing:
        return standing_of(self._platform, caller, session_token(scope["headers"]))

    async def _admit_anyone(self, scope: Scope, receive: Receive) -> Receive:
        self._count(scope, await self._sender_inside(scope))
        await scope[LEASE].is_from(address_of(scope, self._platform))
        if scope["type"] == "http" and scope["method"] in ("POST", "PATCH"):
            return replayed(await _whole(receive, MAX_UNSIGNED_BODY, scope[LEASE]), receive)
        return receive

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        began = time.monotonic()
        try:
            caller, receive = await self._identify(scope, receive)
        except SandboxerError:
            # Failed attempts are counted too; too many of them are answered with 429 instead.
            self._count(scope, await self._sender_inside(scope))
            await scope[LEASE].is_from(address_of(scope, self._platform))
            raise
        if time.monotonic() - began > HELD_BACK_S:
            # The body came late; what was true for the head may have changed since.
            await self._standing(scope, caller)()
        if not caller.is_owner:
            await self._judge(scope, caller)
        scope[CALLER] = caller
        slot: Slot | None = scope.get(SLOT)
        if slot is not None:
            lease: Lease = scope[LEASE]
            slot.proven(lease.account)
        return receive

    async def _identify(self, scope: Scope, receive: Receive) -> tuple[Caller, Receive]:
        platform = self._platform
        headers = scope["headers"]
        if (known := scope.get(KNOWN)) is not None:
            await self._name_payer(scope, known)
            return known, await _unsigned(scope, receive)
        if _is_plainly_signed(headers):
            token = signed_in = bearer = None
        else:
            token = session_token(headers)
            bearer = token_in(headers, BEARER_PREFIX)
            signed_in = _sign_in(headers)
        uid, sandbox = _user(scope), _sandbox(scope)
        if sandbox is not None:
            # Whoever is let in by a token of some sandbox has a credential, too.
            if _has_credentials(headers) or _access(scope) in OF_SANDBOXES:
                raise _two_callers(
                    "a sandbox is known by the socket in it, and the request names a caller beside that",
                    "Send no credentials through /run/sandboxer/api.sock.",
                )
            caller = sandbox
        elif _access(scope) in OF_SANDBOXES:
            # They stand for bearer tokens.
            self._demand_bearers(scope)
            caller = await by_sandbox_token(platform, scope)
        elif uid is not None and not _has_credentials(headers):
            caller = await platform.local_users.caller(uid)
        elif token is None and signed_in is None and bearer is None:
            verdict = await platform.authenticator.check_head(
                headers, scope.get("method", "GET"), target_of(scope), platform.clock.now()
            )
            if scope["type"] == "websocket":
                # An upgrade has no body; its signature must say so.
                verdict.verify(b"")
                await self._name_payer(scope, verdict.caller)
                return verdict.caller, receive
            await self._name_payer(scope, verdict.caller)
            return verdict.caller, await _checked(scope, receive, verdict)
        elif bearer is not None and signed_in is None:
            caller = await self._by_bearer(scope, bearer)
        elif token is not None and signed_in is None:
            caller = await platform.wallets.sessions.authenticate(token)
        elif token is None and signed_in is not None:
            caller = await platform.wallets.siwx.identify(signed_in, target_of(scope))
        else:
            raise _two_callers()
        await self._name_payer(scope, caller)
        return caller, await _unsigned(scope, receive)

    async def _by_bearer(self, scope: Scope, token: str) -> Caller:
        self._demand_bearers(scope)
        return await self._platform.bearers.authenticate(token)

    def _demand_bearers(self, scope: Scope) -> None:
        """Raises Unauthenticated unless this platform takes bearer tokens, and from such a connection."""
        if not self._platform.settings.bearer_tokens:
            raise Unauthenticated(
                why="this platform takes no bearer tokens",
                reason="bearer_off",
                hint="Sign the request (docs/reference/auth.md), or ask the operator.",
            )
        peer = scope.get("client")
        address = None if peer is None else peer[0]
        demand_privacy(
            scope.get("scheme", "http"),
            address,
            scope["headers"],
            is_trusted_proxy=is_trusted(address, self._platform.trusted_proxies),
        )

    async def _name_payer(self, scope: Scope, caller: Caller) -> None:
        """Decides which account the request's memory counts for: for a delegated key, the account
        at the top.
        """
        lease: Lease = scope[LEASE]
        is_owner = caller.is_owner
        await lease.is_for(caller.account if is_owner else (await self._platform.authorities.of(caller)).root)

    async def _judge(self, scope: Scope, caller: Caller) -> None:
        """Checks the rate limits, that the account is active, and that the key has the scope."""
        now = self._platform.clock.now()
        authority = await self._platform.authorities.of(caller, now=now)
        self._count(scope, authority.sender(caller, now=now))
        demand_active(authority, now=now)
        operation = operation_of(scope)
        if operation is not None and operation.way_out is not None and operation.way_out.is_always:
            demand_way_out(self._platform, caller)
        if self._is_by_invitation and _is_making(operation):
            demand_invited(authority)
        if authority.is_delegated:
            demand_needs(authority, None if operation is None else operation.needs, now=now)

    async def _sender_inside(self, scope: Scope) -> Sender | None:
        """Returns for whom a request of a sandbox counts that names nobody, or is refused: making sandboxes
        must not multiply an allowance.
        """
        if (sandbox := _sandbox(scope)) is None:
            return None
        now = self._platform.clock.now()
        return (await self._platform.authorities.of(sandbox, now=now)).sender(sandbox, now=now)

    def _count(self, scope: Scope, sender: Sender | None) -> None:
        platform = self._platform
        operation = operation_of(scope)
        kind = RateClass.API if operation is None else operation.rate
        if kind is RateClass.UNCOUNTED or (kind is RateClass.API and KNOWN in scope):
            # What a door asks for somebody, it was asked for, and that was counted.
            return
        wanted = quotas(kind, address=address_of(scope, platform), caller=sender, policy=platform.limits)
        platform.limiter.admit(wanted, now=time.monotonic())


def demand_way_out(platform: Platform, caller: Caller) -> None:
    """Raises Forbidden if a program in a sandbox without a network asks for a way of one."""
    if caller.public_key.startswith(INSIDE):
        demand_network(platform.sandboxes.repository.peek(caller.public_key.removeprefix(INSIDE)))


def address_of(scope: Scope, platform: Platform) -> str:
    """Returns the network address, or the user of this machine, that a request is counted for."""
    if (uid := _user(scope)) is not None:
        return f"uid:{uid}"
    if (sandbox := _sandbox(scope)) is not None:
        return sandbox.public_key
    peer = scope.get("client")
    forwarded = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return client_address(None if peer is None else peer[0], forwarded, platform.trusted_proxies)


def caller_of(scope: Scope) -> Caller:
    caller = scope[CALLER]
    assert isinstance(caller, Caller)
    return caller


def target_of(scope: Scope) -> str:
    """Returns path and query exactly as sent: decoding and encoding again would not give back the
    same bytes.
    """
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope["query_string"]
    # latin-1 maps every byte to one character; the authenticator refuses what is not ASCII.
    return (raw + b"?" + query if query else raw).decode("latin-1")


async def _unsigned(scope: Scope, receive: Receive) -> Receive:
    """Returns what delivers a body that nobody signed."""
    if scope["type"] != "http":
        return receive
    if _is_upload(scope):
        return _streamed(receive, None)
    return replayed(await _whole(receive, MAX_BODY, scope[LEASE]), receive)


async def _checked(scope: Scope, receive: Receive, verdict: Verdict) -> Receive:
    if _is_upload(scope) and not verdict.needs_body:
        return _streamed(receive, verdict.body_check())
    if verdict.content_sha256 == EMPTY_SHA256 and _is_empty(scope["headers"]):
        # Most reads have no body. Waiting for one with a timer would cost as much as the signature.
        return receive
    body = await _whole(receive, MAX_V1_BODY if verdict.needs_body else MAX_BODY, scope[LEASE])
    lease: Lease = scope[LEASE]
    await lease.work(len(body), lambda: verdict.verify(body))
    return replayed(body, receive)


def _is_empty(headers: list[tuple[bytes, bytes]]) -> bool:
    """Tells whether the request has no body, because it announces none (RFC 9112, 6.3)."""
    return not any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in headers
    )


def _is_plainly_signed(headers: list[tuple[bytes, bytes]]) -> bool:
    """Tells whether the request is signed and nothing else in its head could identify a caller."""
    head = dict(headers)
    return (
        len(head) == len(headers)
        and b"x-signature" in head
        and SIGN_IN not in head
        and SESSION_MARK not in head.get(b"authorization", b"")
        and BEARER_MARK not in head.get(b"authorization", b"")
    )


def _is_upload(scope: Scope) -> bool:
    operation = operation_of(scope)
    return operation is not None and isinstance(operation.body, Stream)


def _access(scope: Scope) -> Access:
    """Returns the access that a path needs. Whether a path is served is told only to known callers."""
    operation = operation_of(scope)
    return Access.SIGNED if operation is None else operation.access


def _is_making(operation: AnyOperation | None) -> bool:
    """Tells whether something may come of a request: it does more than look, sign in or remove."""
    if operation is None or operation.rate is not RateClass.API:
        return False
    return operation.method not in ("GET", "HEAD", "DELETE")


def _names_nobody(scope: Scope) -> bool:
    return scope["type"] == "http" and not _has_credentials(scope["headers"])


def _has_credentials(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name in _CREDENTIALS for name, _ in headers)


def _user(scope: Scope) -> int | None:
    """Returns which user of this machine opened the connection, if it came by the socket."""
    slot: Slot | None = scope.get(SLOT)
    return None if slot is None else slot.uid


def _sandbox(scope: Scope) -> Caller | None:
    """Returns the sandbox whose programs opened the connection, if it came from inside one."""
    slot: Slot | None = scope.get(SLOT)
    return None if slot is None else slot.sandbox


def _is_known(scope: Scope) -> bool:
    """Tells whether its caller is known without anything in the head that says so."""
    return KNOWN in scope or _user(scope) is not None or _sandbox(scope) is not None


def _sign_in(headers: list[tuple[bytes, bytes]]) -> str | None:
    """Authenticates by the SIGN-IN-WITH-X header, which is refused beside anything else that identifies a
    caller.
    """
    if not (values := [value for name, value in headers if name == SIGN_IN]):
        return None
    if len(values) > 1 or any(name in _OF_OTHERS for name, _ in headers):
        raise _two_callers()
    return values[0].decode("latin-1")


def _two_callers(
    why: str = "the request names its caller in two ways",
    hint: str = "Send one of: a signature, a bearer token, a session token, SIGN-IN-WITH-X.",
) -> Unauthenticated:
    return Unauthenticated(why=why, reason="two_callers", hint=hint)


async def _whole(receive: Receive, limit: int, lease: Lease) -> bytes:
    chunks: list[bytes] = []
    size, shape = 0, None
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk = message.get("body", b"")
                size += len(chunk)
                if size > limit:
                    raise problems.too_large(limit)
                if chunk:
                    await lease.grow(len(chunk))
                    chunks.append(chunk)
                if size > SMALL:
                    # Counted from its beginning, once it is known to be large.
                    pieces = chunks if shape is None else [chunk]
                    shape = shape or Shape()
                    for piece in pieces:
                        shape.feed(piece)
                if not message.get("more_body", False):
                    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    except TimeoutError:
        raise problems.TooSlow from None


def replayed(body: bytes, receive: Receive) -> Receive:
    """Delivers the body in one piece, then whatever the connection says next (that the client went away)."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def _streamed(receive: Receive, check: BodyCheck | None) -> Receive:
    is_done = False
    size, began = 0, time.monotonic()

    async def stream() -> Message:
        nonlocal is_done, size
        if is_done:
            return await receive()
        try:
            async with asyncio.timeout(UPLOAD_PAUSE_S):
                message = await receive()
        except TimeoutError:
            raise problems.TooSlow from None
        if message["type"] != "http.request":
            return message
        size += len(message.get("body", b""))
        passed = time.monotonic() - began
        if passed > UPLOAD_PATIENCE_S and size < passed * UPLOAD_SLOWEST and message.get("more_body", False):
            raise problems.TooSlow
        if check is not None:
            check.update(message.get("body", b""))
        if not message.get("more_body", False):
            if check is not None:
                check.finish()
            is_done = True
        return message

    return stream


def _standing_at_its_end(receive: Receive, standing: Standing) -> Receive:
    """Makes sure that nothing is committed for credentials that ended while the body arrived."""

    async def stream() -> Message:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            await standing()
        return message

    return stream


async def _refuse(error: SandboxerError, scope: Scope, receive: Receive, send: Send) -> None:
    answer = problems.response(error, problems.request_id_of(scope))
    slot: Slot | None = scope.get(SLOT)
    if slot is not None:
        slot.refused()
    if scope["type"] == "http":
        # The unread rest of the body is not needed any more.
        answer.headers["connection"] = "close"
        await answer(scope, receive, send)
    elif "websocket.http.response" in scope.get("extensions", {}):
        head = {
            "type": "websocket.http.response.start",
            "status": answer.status_code,
            "headers": answer.raw_headers,
        }
        await send(head)
        await send({"type": "websocket.http.response.body", "body": answer.body})
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": error.code})
