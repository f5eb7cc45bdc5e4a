"""Serves one connection from inside: what it asks for, whether that is allowed, and the connection to it.

It may carry many requests. Each is decided by itself, and the first that is refused is the last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from sandboxer.access.egress.outlet import Outlet
from sandboxer.access.egress.policy import Allow, Ask, Deny, denial_of_address
from sandboxer.access.egress.proxy.dialer import Means, Refused, Unreachable
from sandboxer.access.egress.proxy.exchange import (
    ESTABLISHED,
    BadAnswer,
    Stale,
    Timeouts,
    denied,
    exchange,
    join,
    problem,
)
from sandboxer.access.egress.proxy.tls import (
    ALERT_DENIED,
    NotTls,
    Opening,
    is_whole,
    opening,
    override_of,
    secret_lines,
    server_name,
    shake_hands,
    without,
)
from sandboxer.access.egress.proxy.wire import Gone, Wire
from sandboxer.access.egress.rules import BadName, authority_of, is_address
from sandboxer.access.http1.heads import BadHead, ForwardHead, read_forward
from sandboxer.backends.guest import Connection, HandsOver, Relay
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.tasks import TaskOwner, own_tasks

LINGER_S = 20.0
_PLAIN_WAY = "Ask for http:// URLs without CONNECT, as programs do that are told of an HTTP proxy."
# Said by the supervisor inside for a program that knows no proxy: requests of plain HTTP follow.
_PLAIN = b"sandboxer-plain: http\r\n"
# Methods that are repeated on a new connection if a kept one was just closed by the server.
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})


class EgressConnection:
    __slots__ = (
        "_ask",
        "_client",
        "_ended",
        "_is_opened",
        "_is_unread",
        "_means",
        "_named",
        "_outlet",
        "_said",
        "_timeouts",
        "_upstream",
    )

    def __init__(self, outlet: Outlet, client: Wire, means: Means) -> None:
        self._outlet = outlet
        self._client = client
        self._means = means
        self._timeouts = Timeouts(means.patience.answer_s, means.patience.idle_s)
        self._upstream: Wire | None = None
        self._ask: Ask | None = None
        self._ended: Deny | None = None
        self._said = ""
        # How it was judged: whether its TLS ends here, whether nobody looked whom it speaks to, and the name
        # that TLS to an address gave.
        self._is_opened = self._is_unread = False
        self._named: str | None = None

    @property
    def ask(self) -> Ask:
        assert self._ask is not None
        return self._ask

    def denial(self) -> Deny | None:
        """Returns why the present rules do not allow it as it was begun."""
        rules, ask = self._outlet.rules, self.ask
        verdict = self._outlet.decide(ask)
        if isinstance(verdict, Deny):
            return verdict
        if verdict.is_opened != self._is_opened:
            return Deny("rules_changed", "its TLS has to be opened by the rules of now, or not to be")
        if self._is_unread and rules.tells_names_apart(ask.port):
            return Deny("rules_changed", "they tell names apart, and nobody looked whom it speaks to")
        if self._named is not None and (deny := self._denial_at_address(self._named)) is not None:
            return deny
        return None if self._upstream is None else denial_of_address(rules, self._upstream.address, ask.port)

    def end(self, deny: Deny) -> None:
        """Ends it because it is no longer allowed: with a message if nothing was sent yet, otherwise
        abruptly.
        """
        if self._ended is not None:
            return
        self._ended = deny
        self._outlet.refuse(deny, self._ask, self._said)
        if self._client.said == 0:
            self._client.write(denied(deny, self._ask, self._outlet.sandbox_id))
            self._client.close()
        else:
            self._client.abort()
        if self._upstream is not None:
            self._upstream.abort()

    def leave(self) -> None:
        """Closes it while it is idle, because others wait for its place."""
        self._client.close()

    async def run(self) -> None:
        """Returns when the connection is over. Raises nothing for what others do."""
        try:
            await self._serve()
        except Refused as error:
            self._refuse(error.deny)
        except BadHead as error:
            self._refuse(Deny("malformed", f"the request cannot be understood: {error.why}"), error.status)
        except BadName as error:
            self._refuse(Deny("bad_name", f"{self._said!r} names no host: {error}"))
        except Unreachable as error:
            self._say(problem(error.status, error.code, error.why, "Try again, or another address."))
        except BadAnswer as error:
            self._say(problem(error.status, "bad_answer", error.why, "Nothing can be done from here."))
        except TimeoutError:
            self._say(problem(408, "too_slow", "The request did not come in time.", "Send it at once."))
        except (Gone, OSError):
            pass
        finally:
            self._outlet.flows.discard(self)
            self._client.tied = None
            if self._upstream is not None:
                self._upstream.abort()
            self._client.close()
            if self._client.has_unsent:
                # A client that does not read the last bytes is not waited for.
                asyncio.get_running_loop().call_later(LINGER_S, self._client.abort)

    def _say(self, answer: bytes) -> None:
        """Sends a message, unless an answer or a tunnel is in progress."""
        if self._client.said == 0:
            self._client.write(answer)

    def _refuse(self, deny: Deny, status: int = 403) -> None:
        self._outlet.refuse(deny, self._ask, self._said)
        answer = denied(deny, self._ask, self._outlet.sandbox_id)
        if status != 403:
            answer = problem(status, "bad_request", deny.why, "Send HTTP/1.1 as RFC 9112 says.")
        self._say(answer)

    async def _serve(self) -> None:
        while True:
            head = read_forward(await self._client.head(self._means.patience.head_s))
            self._said = head.authority
            host, port = authority_of(head.authority, default_port=None if head.is_connect else 80)
            if head.is_connect:
                is_plain = port == 80 and any(line.lower() == _PLAIN for line in head.lines)
                await self._connect(Ask(host, port, is_tls=port == 443), is_plain=is_plain)
                return
            ask = Ask(host, port, False, head.method, head.path, override_of(head.lines))
            if not await self._request(head, ask, b"") or not await self._rest():
                return

    async def _rest(self) -> bool:
        """Waits for the next request on this connection; tells whether one came."""
        client = self._client
        self._ask, self._said = None, ""
        if client.is_full:
            # A client that does not read its answers gets no further one.
            async with asyncio.timeout(self._means.patience.idle_s):
                await client.drained()
        client.said = 0
        self._outlet.resting[self] = None
        try:
            return await client.stirs(self._means.patience.next_s)
        finally:
            self._outlet.resting.pop(self, None)

    def _demand(self, ask: Ask) -> Allow:
        """Notes what is asked for and returns on which terms it is allowed. Raises Refused."""
        self._ask = ask
        verdict = self._outlet.decide(ask)
        if isinstance(verdict, Deny):
            raise Refused(verdict)
        return verdict

    # ---- messages ----

    async def _request(self, head: ForwardHead, ask: Ask, secrets: bytes) -> bool:
        """Serves one request; tells whether another one may follow."""
        outlet, client = self._outlet, self._client
        self._demand(ask)
        if self._ended is not None:
            raise Gone
        outlet.flows.add(self)
        where = (ask.host, ask.port, ask.is_tls)
        kept = outlet.idle.take(where) if head.length == 0 and head.method in _REPEATABLE else None
        lines = self._host_line(ask) + secrets
        try:
            self._upstream = upstream = kept or await self._dial(ask)
            ended = await exchange(client, upstream, head, lines, self._timeouts, is_kept=kept is not None)
        except Stale:
            if self._ended is not None:
                raise Gone from None
            self._upstream = upstream = await self._dial(ask)
            ended = await exchange(client, upstream, head, lines, self._timeouts)
        outlet.flows.discard(self)
        client.tied = self._upstream = None
        if ended.upstream and self._ended is None:
            outlet.idle.give(where, upstream)
        else:
            upstream.abort()
        return ended.client and self._ended is None

    async def _open(self, connected: Ask) -> None:
        """Terminates TLS here and opens it anew outside, so that each request can be decided by itself."""
        await shake_hands(self._outlet, self._client, connected, self._means)
        await self._requests(connected)

    async def _requests(self, connected: Ask) -> None:
        """Serves requests to one host in what is a tunnel to the program inside. Secrets go over TLS only."""
        client, outlet = self._client, self._outlet
        client.said = 0
        while True:
            self._ask = connected
            head = read_forward(await client.head(self._means.patience.head_s), is_opened=True)
            self._said = head.authority
            host, port = authority_of(head.authority, default_port=connected.port)
            if (host, port) != (connected.host, connected.port):
                raise Refused(Deny("other_host", f"the request inside names {host}, not {connected.host}"))
            ask = Ask(host, port, connected.is_tls, head.method, head.path, override_of(head.lines))
            self._demand(ask)
            secrets = await secret_lines(outlet, host, self._means) if ask.is_tls else []
            head.lines = without(head.lines, secrets)
            if not await self._request(head, ask, b"".join(secrets)) or not await self._rest():
                return

    # ---- tunnels ----

    async def _connect(self, ask: Ask, *, is_plain: bool) -> None:
        verdict = self._demand(ask)
        if is_plain:
            self._client.write(ESTABLISHED)
            await self._requests(ask)
            return
        if ask.port == 80:
            raise Refused(Deny("connect_to_80", f"a tunnel to port 80 hides what is asked for. {_PLAIN_WAY}"))
        self._is_opened = verdict.is_opened
        self._outlet.flows.add(self)
        if verdict.is_opened:
            await self._open(ask)
            return
        client = self._client
        upstream = self._upstream = client.tied = await self._dial(ask, is_whole=True)
        client.write(ESTABLISHED)
        if ask.is_tls:
            await self._check_hello()
        elif not self._outlet.rules.tells_names_apart(ask.port):
            self._is_unread = True
        elif await self._is_http(upstream):
            # Each of its requests has to name the host that was asked for, as without a tunnel.
            self._release(upstream)
            await self._requests(ask)
            return
        await join(client, upstream, self._means.patience.idle_s)

    async def _is_http(self, upstream: Wire) -> bool:
        """Tells whether the program inside begins with a request of plain HTTP, and refuses TLS to another
        name. Until it says something, the other side may speak.
        """
        upstream.pipe(self._client)
        found: Opening | None = None

        def enough(data: bytes) -> bool:
            nonlocal found
            found = opening(data)
            return found is not None

        while found is None:
            moved = upstream.heard
            try:
                async with asyncio.timeout(self._means.patience.idle_s):
                    await self._client.look(enough)
            except TimeoutError:
                if moved == upstream.heard:
                    raise Gone from None
            except Gone:
                if self._client.is_lost:
                    raise
                # It says nothing more, and listens.
                return False
        if found is Opening.TLS:
            await self._check_hello()
        return found is Opening.HTTP and not is_address(self.ask.host)

    def _release(self, upstream: Wire) -> None:
        """Keeps a connection on which nothing was said for a request that follows."""
        upstream.unpipe()
        self._client.tied = self._upstream = None
        self._outlet.flows.discard(self)
        if upstream.heard:
            upstream.abort()
        else:
            self._outlet.idle.give((self.ask.host, self.ask.port, False), upstream)

    async def _check_hello(self) -> None:
        """Refuses TLS whose server name differs from the name that the rules were asked about. Where they
        were asked about an address there may be no name, and one that they deny is refused.
        """
        heard: bytes = b""

        def enough(data: bytes) -> bool:
            nonlocal heard
            heard = data
            return is_whole(data)

        try:
            async with asyncio.timeout(self._means.patience.head_s):
                await self._client.look(enough)
            name = server_name(heard)
        except NotTls as error:
            only = "on port 443 only TLS is spoken" if self.ask.is_tls else "its TLS cannot be read"
            self._break_off(Deny("not_tls", f"{only}, and {error}"))
        if is_address(self.ask.host):
            self._named = name
            if name is not None and (deny := self._denial_at_address(name)) is not None:
                self._break_off(deny)
            return
        if name is None:
            if not self.ask.is_tls:
                # Elsewhere than on 443 not every program says it, and it then speaks to who is there.
                return
            self._break_off(Deny("no_server_name", "its TLS does not say to whom it wants to speak"))
        if name.lower().removesuffix(".") != self.ask.host:
            self._break_off(
                Deny("other_server_name", f"its TLS wants to speak to {name[:253]}, not to {self.ask.host}")
            )

    def _denial_at_address(self, name: str) -> Deny | None:
        """Returns why TLS to an address may not give this name."""
        named = self._outlet.decide(Ask(name.lower().removesuffix("."), self.ask.port, is_tls=True))
        # An address that a rule allows is whatever is there; what a rule denies or looks into is not.
        is_denied = isinstance(named, Deny) and named.rule is not None
        if not is_denied and not (isinstance(named, Allow) and named.is_opened):
            return None
        why = f"its TLS wants to speak to {name[:253]}, which is to be asked for by its name"
        return Deny("other_server_name", why, named.rule)

    def _break_off(self, deny: Deny) -> NoReturn:
        self._client.write(ALERT_DENIED)
        raise Refused(deny)

    # ---- the way there ----

    @staticmethod
    def _host_line(ask: Ask) -> bytes:
        default = 443 if ask.is_tls else 80
        port = "" if ask.port == default else f":{ask.port}"
        return f"Host: {ask.host}{port}\r\n".encode()

    async def _dial(self, ask: Ask, *, is_whole: bool = False) -> Wire:
        """Connects. `is_whole` means that any TLS is the program's own."""
        outlet = self._outlet
        await outlet.turn()
        upstream = await self._means.dialer.dial(
            ask.host,
            ask.port,
            outlet.count_received,
            outlet.count_sent,
            owner=outlet.account,
            denial_of=lambda address: denial_of_address(outlet.rules, address, ask.port),
            is_tls=ask.is_tls and not is_whole,
        )
        if self._ended is not None:
            # The rules changed while it was dialled.
            upstream.abort()
            raise Gone
        return upstream


log = logging.getLogger(__name__)
# The pause before listening again at a sandbox that exists and does not answer.
_AGAIN_S = (0.05, 0.2, 1.0, 5.0)


async def relay_calls(
    outlet: Outlet, first: Relay, again: Callable[[], Awaitable[Relay | None]], means: Means
) -> None:
    """Relays connections until it is cancelled, or until `again` says that the sandbox is gone."""
    relay: Relay | None = first
    failures = 0
    async with own_tasks() as tasks:
        while relay is not None:
            try:
                await _take(outlet, relay, means, tasks)
            except SandboxerError as error:
                log.info("the relay of %s broke off: %s", outlet.sandbox_id, error)
            finally:
                await relay.close()
            relay = None
            while relay is None:
                await asyncio.sleep(_AGAIN_S[min(failures, len(_AGAIN_S) - 1)])
                failures += 1
                try:
                    relay = await again()
                except SandboxerError as error:
                    log.info("%s cannot be listened to: %s", outlet.sandbox_id, error)
                    continue
                if relay is None:
                    return
            failures = 0 if failures < len(_AGAIN_S) else failures


async def _take(outlet: Outlet, relay: Relay, means: Means, tasks: TaskOwner) -> None:
    """Accepts connections. Those beyond the limit wait inside."""
    running: set[asyncio.Task[None]] = set()
    while True:
        while len(running) >= outlet.rules.limits.connections:
            outlet.make_room()
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        call = await relay.next_call()
        task = tasks.start(_carry(outlet, relay, call, means), name="egress")
        running.add(task)
        task.add_done_callback(running.discard)


async def _carry(outlet: Outlet, relay: Relay, call: int, means: Means) -> None:
    try:
        client = await wire_of(await relay.accept(call), outlet)
    except (SandboxerError, OSError) as error:
        log.info("a call of %s was lost: %s", outlet.sandbox_id, error)
        return
    try:
        await EgressConnection(outlet, client, means).run()
    except Exception:
        # A failure of one connection must not end the others.
        log.exception("a connection of %s failed", outlet.sandbox_id)


async def wire_of(connection: Connection, outlet: Outlet) -> Wire:
    if not isinstance(connection, HandsOver):
        raise TypeError("a relayed connection must hand its socket over")
    handed = connection.hand_over()
    try:
        _, client = await asyncio.get_running_loop().create_unix_connection(
            lambda: Wire(outlet.heard, handed.closed), sock=handed.sock
        )
    except BaseException:
        handed.closed()
        handed.sock.close()
        raise
    if handed.received:
        client.data_received(handed.received)
    return client
