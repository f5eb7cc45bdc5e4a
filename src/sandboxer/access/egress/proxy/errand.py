"""One connection from inside, first byte to last: what is asked, whether it may be, and the way there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from sandboxer.access.egress.decision import Ask, Deny
from sandboxer.access.egress.names import BadName, authority_of
from sandboxer.access.egress.outlet import Outlet, Secrets
from sandboxer.access.egress.proxy.answers import ESTABLISHED, denied, problem
from sandboxer.access.egress.proxy.dialing import Dialer, Refused, Unreachable
from sandboxer.access.egress.proxy.exchange import BadAnswer, exchange
from sandboxer.access.egress.proxy.hello import ALERT_DENIED, NotTls, is_whole, server_name
from sandboxer.access.egress.proxy.wire import Gone, Wire
from sandboxer.access.http1.forward import ForwardHead, read_forward
from sandboxer.access.http1.heads import BadHead

LINGER_S = 20.0
_PLAIN_WAY = "Ask for http:// URLs without CONNECT, as programs do that are told of an HTTP proxy."


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    # For a whole head, or the first words of TLS.
    head_s: float = 20.0
    # For an upstream's answer to begin.
    answer_s: float = 120.0
    # Without a byte either way.
    idle_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What every errand works with."""

    dialer: Dialer
    secrets: Secrets
    now: Callable[[], datetime]
    patience: Patience = Patience()


class Errand:
    def __init__(self, outlet: Outlet, client: Wire, means: Means) -> None:
        self._outlet = outlet
        self._client = client
        self._means = means
        self._upstream: Wire | None = None
        self._ask: Ask | None = None
        self._ended: Deny | None = None
        self._said = ""
        self.is_opened = False

    @property
    def ask(self) -> Ask:
        assert self._ask is not None
        return self._ask

    def end(self, deny: Deny) -> None:
        """Not allowed any more: told if nothing was said yet, else broken off."""
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

    async def run(self) -> None:
        """Returns when it is over. Raises nothing for what others do."""
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
            if self._upstream is not None:
                self._upstream.abort()
            self._client.close()
            if self._client.has_unsent:
                # Whoever does not take the last words is not waited for.
                asyncio.get_running_loop().call_later(LINGER_S, self._client.abort)

    def _say(self, answer: bytes) -> None:
        """In the middle of an answer or of a tunnel there is nothing more to say."""
        if self._client.said == 0:
            self._client.write(answer)

    def _refuse(self, deny: Deny, status: int = 403) -> None:
        self._outlet.refuse(deny, self._ask, self._said)
        answer = denied(deny, self._ask, self._outlet.sandbox_id)
        if status != 403:
            answer = problem(status, "bad_request", deny.why, "Send HTTP/1.1 as RFC 9112 says.")
        self._say(answer)

    async def _serve(self) -> None:
        head = read_forward(await self._client.head(self._means.patience.head_s))
        self._said = head.authority
        host, port = authority_of(head.authority, default_port=None if head.is_connect else 80)
        if head.is_connect:
            self._ask = Ask(host, port, is_tls=port == 443)
        else:
            self._ask = Ask(host, port, False, head.method, head.path)
        verdict = self._outlet.decide(self.ask)
        if isinstance(verdict, Deny):
            raise Refused(verdict)
        if head.is_connect and port == 80:
            raise Refused(Deny("connect_to_80", f"a tunnel to port 80 hides what is asked for. {_PLAIN_WAY}"))
        self.is_opened = verdict.is_opened
        self._outlet.flows.add(self)
        if not head.is_connect:
            await self._forward(head)
        elif verdict.is_opened:
            await self._open()
        else:
            await self._tunnel()

    # ---- tunnels ----

    async def _tunnel(self) -> None:
        client, ask = self._client, self.ask
        upstream = self._upstream = await self._dial(is_tls=False)
        client.write(ESTABLISHED)
        if ask.is_tls:
            await self._check_hello()
        client.pipe(upstream)
        upstream.pipe(client)
        await self._both_over(client, upstream)

    async def _check_hello(self) -> None:
        """TLS says to whom it wants to speak: another than the rules were asked about is refused."""
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
            self._break_off(Deny("not_tls", f"on port 443 only TLS is spoken, and {error}"))
        if name is None:
            self._break_off(Deny("no_server_name", "its TLS does not say to whom it wants to speak"))
        if name.lower().removesuffix(".") != self.ask.host:
            self._break_off(
                Deny("other_server_name", f"its TLS wants to speak to {name[:253]}, not to {self.ask.host}")
            )

    def _break_off(self, deny: Deny) -> NoReturn:
        self._client.write(ALERT_DENIED)
        raise Refused(deny)

    async def _both_over(self, client: Wire, upstream: Wire) -> None:
        """Until both ways are over, or nothing moved for long."""
        while True:
            moved = client.said, upstream.said
            _, waiting = await asyncio.wait((client.over, upstream.over), timeout=self._means.patience.idle_s)
            if not waiting or client.is_lost or upstream.is_lost:
                return
            if moved == (client.said, upstream.said):
                return

    # ---- messages ----

    async def _forward(self, head: ForwardHead) -> None:
        self._upstream = await self._dial(is_tls=False)
        await exchange(
            self._client, self._upstream, head, self._host_line(), [], self._means.patience.answer_s
        )

    async def _open(self) -> None:
        """TLS ends here, and begins anew outside: each request is asked about by itself."""
        await self._shake_hands()
        head = read_forward(await self._client.head(self._means.patience.head_s), is_opened=True)
        host, port = authority_of(head.authority, default_port=443)
        if (host, port) != (self.ask.host, self.ask.port):
            raise Refused(Deny("other_host", f"the request inside names {host}, not {self.ask.host}"))
        self._ask = Ask(host, port, True, head.method, head.path)
        verdict = self._outlet.decide(self.ask)
        if isinstance(verdict, Deny):
            raise Refused(verdict)
        lines = await self._secret_lines(host)
        replaced = {line.partition(b":")[0].lower() for line in lines}
        head.lines[:] = [line for line in head.lines if line.partition(b":")[0].lower() not in replaced]
        self._upstream = await self._dial(is_tls=True)
        await exchange(
            self._client, self._upstream, head, self._host_line(), lines, self._means.patience.answer_s
        )

    async def _shake_hands(self) -> None:
        client, authority = self._client, self._outlet.authority
        if authority is None or client.has_early_bytes:
            raise BadHead("TLS begins after the answer to CONNECT")
        context = authority.context_for(self.ask.host, self._means.now())
        client.write(ESTABLISHED)
        try:
            opened = await asyncio.get_running_loop().start_tls(
                client.transport,
                client,
                context,
                server_side=True,
                ssl_handshake_timeout=self._means.patience.head_s,
            )
        except (ssl.SSLError, ConnectionError) as error:
            why = "the program inside did not take our certificate; it must trust SSL_CERT_FILE"
            self._outlet.refuse(Deny("no_handshake", f"{why} ({error})"), self._ask, self._said)
            raise Gone from None
        if opened is None:
            raise Gone
        client.connection_made(opened)
        client.said = 0

    async def _secret_lines(self, host: str) -> list[bytes]:
        lines = []
        for one in self._outlet.rules.injections(host):
            value = await self._means.secrets.value_of(self._outlet.account, one.secret)
            if value is None:
                raise Refused(Deny("no_secret", f"there is no secret {one.secret} to put into {one.header}"))
            text = one.form.replace("{}", value)
            if not text.isprintable() or not text.isascii():
                raise Refused(Deny("no_secret", f"the secret {one.secret} cannot be put into a header"))
            lines.append(f"{one.header}: {text}\r\n".encode())
        return lines

    def _host_line(self) -> bytes:
        default = 443 if self.ask.is_tls else 80
        port = "" if self.ask.port == default else f":{self.ask.port}"
        return f"Host: {self.ask.host}{port}\r\n".encode()

    async def _dial(self, *, is_tls: bool) -> Wire:
        await self._outlet.turn()
        upstream = await self._means.dialer.dial(
            self.ask.host,
            self.ask.port,
            self._outlet.count_received,
            self._outlet.count_sent,
            is_tls=is_tls,
        )
        if self._ended is not None:
            # The rules changed while it was dialled.
            upstream.abort()
            raise Gone
        return upstream
