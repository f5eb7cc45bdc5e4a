"""TLS that ends at the proxy: the handshake with the program inside, and the headers that carry secrets."""

from __future__ import annotations

import asyncio
import ssl

from sandboxer.access.egress.decision import Ask, Deny
from sandboxer.access.egress.outlet import Outlet
from sandboxer.access.egress.proxy.answers import ESTABLISHED
from sandboxer.access.egress.proxy.dialing import Refused
from sandboxer.access.egress.proxy.means import Means
from sandboxer.access.egress.proxy.wire import Gone, Wire
from sandboxer.access.http1.heads import BadHead

# Headers by which servers and frameworks read another method or path than the request line's.
_OVERRIDES = frozenset(
    {
        b"x-forwarded-uri",
        b"x-http-method",
        b"x-http-method-override",
        b"x-http-path-override",
        b"x-method-override",
        b"x-original-uri",
        b"x-original-url",
        b"x-override-url",
        b"x-rewrite-url",
    }
)


def override_of(lines: list[bytes]) -> str | None:
    """The first header that may change what the request asks for; CGI reads `_` as `-`."""
    for line in lines:
        name = line.partition(b":")[0]
        if name.lower().replace(b"_", b"-") in _OVERRIDES:
            return name.decode("latin-1")
    return None


async def shake_hands(outlet: Outlet, client: Wire, ask: Ask, means: Means) -> None:
    """Raises BadHead, Gone."""
    authority = outlet.authority
    if authority is None or client.has_early_bytes:
        raise BadHead("TLS begins after the answer to CONNECT")
    context = authority.context_for(ask.host, means.now())
    client.write(ESTABLISHED)
    try:
        opened = await asyncio.get_running_loop().start_tls(
            client.transport,
            client,
            context,
            server_side=True,
            ssl_handshake_timeout=means.patience.head_s,
        )
    except (ssl.SSLError, ConnectionError) as error:
        why = "the program inside did not take our certificate; it must trust SSL_CERT_FILE"
        outlet.refuse(Deny("no_handshake", f"{why} ({error})"), ask)
        raise Gone from None
    if opened is None:
        raise Gone
    client.connection_made(opened)


async def secret_lines(outlet: Outlet, host: str, means: Means) -> list[bytes]:
    """Raises Refused for one that is not there, or is no header."""
    lines = []
    for one in outlet.rules.injections(host):
        value = await means.secrets.value_of(outlet.account, one.secret)
        if value is None:
            raise Refused(Deny("no_secret", f"there is no secret {one.secret} to put into {one.header}"))
        text = one.form.replace("{}", value)
        if not text.isprintable() or not text.isascii():
            raise Refused(Deny("no_secret", f"the secret {one.secret} cannot be put into a header"))
        lines.append(f"{one.header}: {text}\r\n".encode())
    return lines


def without(lines: list[bytes], replacing: list[bytes]) -> list[bytes]:
    """The lines whose headers nothing replaces."""
    replaced = {line.partition(b":")[0].lower() for line in replacing}
    return [line for line in lines if line.partition(b":")[0].lower() not in replaced]
