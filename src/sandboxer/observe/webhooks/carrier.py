"""Sends one message to one URL and says how it went. Never raises for what a receiver does.

Names are resolved here, each address is asked about, and the connection goes to that very address: a name
that changes its mind between check and call gains nothing. Redirects are not followed, proxies not asked,
answers read up to a bound and thrown away (whoever set the URL must not read through us).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from sandboxer.kernel.addresses import DialJudge, Lookups, Network, TooManyLookups, Verdict
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.program import imported, late
from sandboxer.kernel.values import value_class
from sandboxer.observe.webhooks.endpoints import parse_target

if TYPE_CHECKING:
    import certifi
    import httpcore
    from httpcore import AsyncNetworkBackend, AsyncNetworkStream
else:
    # Many platforms never send a message. These two only say which methods there are.
    certifi, httpcore = late("certifi"), late("httpcore")
    AsyncNetworkBackend = AsyncNetworkStream = object

TIMEOUT_S = 15.0
CONNECT_S = 5.0
MAX_ANSWER_BYTES = 64 * 1024
# What a piece of an answer counts for at least, and each head: one byte takes the loop as long as many.
PIECE_COSTS, HEAD_COSTS = 64, 1024
# Of all that a receiver says to one message, head and body; and what is read of it at a time.
MAX_SAID_BYTES = MAX_ANSWER_BYTES + 96 * 1024
READ_BYTES = 4096
GONE = 410


# For whom this task sends: the pool of connections, which asks for addresses, does not know.
_owner: ContextVar[str] = ContextVar("owner", default="platform")


class Failure(StrEnum):
    DNS = "dns"
    FORBIDDEN_ADDRESS = "forbidden_address"
    REFUSED = "refused"
    TLS = "tls"
    TIMEOUT = "timeout"
    STATUS = "status"
    REDIRECT = "redirect"
    TOO_LARGE = "body_too_large"
    BROKEN = "broken_answer"
    INVALID_URL = "invalid_url"
    UNSIGNED = "unsigned"


@value_class
class Outcome:
    # None: it was accepted.
    failure: Failure | None
    reason: str
    status: int | None = None
    took_ms: int = 0

    @property
    def is_accepted(self) -> bool:
        return self.failure is None

    @property
    def is_gone(self) -> bool:
        return self.status == GONE


class _CannotGo(Exception):
    def __init__(self, failure: Failure, reason: str) -> None:
        super().__init__(reason)
        self.failure = failure


@cache
def _public_trust() -> ssl.SSLContext:
    """Reads all certificate authorities, which takes a twentieth of a second."""
    return ssl.create_default_context(cafile=certifi.where())


class Carrier:
    """Sends requests for as long as webhooks are open; `close` it."""

    def __init__(
        self,
        *,
        allow_private: bool,
        never: Sequence[Network] = (),
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_private = allow_private
        self._timeout_s = timeout_s
        self._tls = tls
        self._judge = DialJudge(allow_private=allow_private, never=never)
        self._pool: httpcore.AsyncConnectionPool | None = None

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()

    async def _open_pool(self) -> httpcore.AsyncConnectionPool:
        """Opens it for the first message: many platforms never send one."""
        await asyncio.to_thread(imported, "httpcore")
        tls = self._tls or await asyncio.to_thread(_public_trust)
        if self._pool is None:
            self._pool = httpcore.AsyncConnectionPool(
                ssl_context=tls,
                network_backend=_Pinned(self._judge),
                max_connections=100,
                max_keepalive_connections=20,
                keepalive_expiry=10.0,
            )
        return self._pool

    async def carry(
        self, url: str, headers: Mapping[str, str], body: bytes, *, owner: str = "platform"
    ) -> Outcome:
        """`owner` is the account whose message it is: for whom the look-up of its host's name counts."""
        began = time.monotonic()
        _owner.set(owner)
        signed = {"content-type": "application/json", **headers}
        status, failure, reason, _ = await self._tried("POST", url, signed, body)
        took = int((time.monotonic() - began) * 1000)
        return Outcome(failure=failure, reason=reason, status=status, took_ms=took)

    async def fetch(self, url: str, *, owner: str = "platform") -> bytes:
        """Returns the document at an address that somebody named. Raises InvalidRequest."""
        _owner.set(owner)
        _, failure, reason, content = await self._tried("GET", url, {"accept": "application/json"}, None)
        if failure is not None:
            raise InvalidRequest(field="url", why=f"what is there could not be read: {reason}")
        return content

    async def _tried(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int | None, Failure | None, str, bytes]:
        """Returns the status of the answer, what went wrong, in words, and the answer's body."""
        status, failure, reason, content = None, None, "accepted", b""
        try:
            target = parse_target(url, allow_private=self._allow_private)
            # Before the receiver's time begins: what is loaded for the first message is not its delay.
            pool = self._pool or await self._open_pool()
            async with asyncio.timeout(self._timeout_s):
                status, content = await self._exchange(pool, method, target.url, headers, body)
        except _CannotGo as error:
            failure, reason = error.failure, str(error)
        except InvalidRequest as error:
            failure, reason = Failure.INVALID_URL, str(error)
        except (TimeoutError, httpcore.TimeoutException):
            failure, reason = Failure.TIMEOUT, f"no complete answer within {self._timeout_s:g} s"
        except httpcore.ConnectError as error:
            failure, reason = _of_connect(error)
        except (httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError, OSError, ValueError) as error:
            failure, reason = Failure.BROKEN, f"the connection broke: {_brief(error)}"
        if status is not None and failure is None:
            failure, reason = _of_status(status)
        return status, failure, reason, content

    async def _exchange(
        self,
        pool: httpcore.AsyncConnectionPool,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> tuple[int, bytes]:
        sent = [("user-agent", "sandboxer-webhooks/1"), *headers.items()]
        limits = {"connect": CONNECT_S, "read": self._timeout_s, "write": self._timeout_s, "pool": CONNECT_S}
        async with pool.stream(
            method, url, headers=sent, content=body, extensions={"timeout": limits}
        ) as answer:
            read, content = 0, bytearray()
            async for chunk in answer.aiter_stream():
                content += chunk
                read += max(len(chunk), PIECE_COSTS)
                if read > MAX_ANSWER_BYTES:
                    raise _CannotGo(
                        Failure.TOO_LARGE,
                        f"the answer's body is larger than {MAX_ANSWER_BYTES} bytes, or in too many pieces",
                    )
            return answer.status, bytes(content)


class _Pinned(AsyncNetworkBackend):
    """Dials only addresses that are permitted; TLS still asks for the name."""

    def __init__(self, judge: DialJudge) -> None:
        self._judge = judge
        self._dial = httpcore.AnyIOBackend()
        self._lookups = Lookups("webhooks")

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        last: Exception | None = None
        # At least one address, or it raised.
        for address in await self._addresses(host):
            try:
                return _Bounded(await self._dial.connect_tcp(address, port, timeout, None, socket_options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        assert last is not None
        raise last

    async def connect_unix_socket(self, *args: Any, **options: Any) -> AsyncNetworkStream:
        raise _CannotGo(Failure.FORBIDDEN_ADDRESS, "a webhook goes over the network")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _addresses(self, host: str) -> list[str]:
        """Raises _CannotGo, with the same words for a name that is unknown and for one that is forbidden:
        the answer must not tell whoever set the URL which names exist inside the operator's network."""
        try:
            addresses = await self._lookups.addresses(host, owner=_owner.get())
        except TooManyLookups as error:
            raise _CannotGo(Failure.DNS, f"{host} could not be looked up: {_brief(error)}") from None
        except (socket.gaierror, UnicodeError):
            addresses = ()
        good = [address for address in addresses if self._judge.judge(address) is Verdict.GOOD]
        if not good:
            raise _CannotGo(Failure.FORBIDDEN_ADDRESS, f"{host} has no public address to deliver to")
        return good[:4]


class _Bounded(AsyncNetworkStream):
    """Reads little at a time, so that others have their turn, and only so much for each message: answers
    before the answer (1xx) may go on for ever.
    """

    def __init__(self, stream: AsyncNetworkStream) -> None:
        self._stream = stream
        self._said = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(min(max_bytes, READ_BYTES), timeout)
        self._said += len(data) + HEAD_COSTS * data.count(b"HTTP/1.")
        if self._said > MAX_SAID_BYTES:
            raise _CannotGo(Failure.TOO_LARGE, f"it said more than {MAX_SAID_BYTES} bytes, or too many heads")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._said = 0
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> AsyncNetworkStream:
        return _Bounded(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _of_connect(error: httpcore.ConnectError) -> tuple[Failure, str]:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError):
            return Failure.TLS, f"TLS failed: {_brief(seen)}"
        seen = seen.__cause__ or seen.__context__
    return Failure.REFUSED, f"could not connect: {_brief(error)}"


def _of_status(status: int) -> tuple[Failure | None, str]:
    if 200 <= status < 300:
        return None, "accepted"
    if 300 <= status < 400:
        return Failure.REDIRECT, f"answered {status}; redirects are not followed"
    return Failure.STATUS, f"answered {status}"


def _brief(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:200]


PREFIX = "whsec_"
SECRET_BYTES = 32
SHORTEST, LONGEST = 24, 64


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """Returns the bytes of `whsec_<base64>`. Raises InvalidRequest."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not SHORTEST <= len(key) <= LONGEST:
        raise InvalidRequest(field="secret", why=f"it must be {PREFIX} and base64 of 24 to 64 bytes")
    return key


def signature(secret: str, message: str, timestamp: int, body: bytes) -> str:
    signed = f"{message}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()


def headers_of(message: str, timestamp: int, body: bytes, secrets: Iterable[str]) -> Mapping[str, str]:
    """Returns the signed headers, with one signature for each valid secret, so that a receiver can change
    over at any time.
    """
    headers = {"webhook-id": message, "webhook-timestamp": str(timestamp)}
    signatures = [signature(secret, message, timestamp, body) for secret in secrets]
    return {**headers, "webhook-signature": " ".join(signatures)} if signatures else headers
