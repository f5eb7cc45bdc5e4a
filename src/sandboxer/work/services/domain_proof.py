"""Asks a domain for its token: over plain HTTP, to an address that was checked, following no redirect."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence

from sandboxer.kernel.dial_judge import DialJudge, Verdict
from sandboxer.kernel.errors import Conflict
from sandboxer.kernel.lookups import Lookups, TooManyLookups

WELL_KNOWN = "/.well-known/sandboxer-domain"
_TIMEOUT_S = 10.0
_MAX_ANSWER = 16 * 1024
_LOOKUPS = 16
# What says that somebody else has the name now; all else may be a bad day of the network.
ELSEWHERE = "elsewhere"

# What a domain answers at the well-known path. Raises Conflict saying why there is no answer.
Ask = Callable[[str], Awaitable[bytes]]
# The addresses of a name. Raises OSError or UnicodeError if there are none.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


def system_resolver() -> Resolve:
    lookups = Lookups("domains", threads=_LOOKUPS, each=_LOOKUPS)

    async def resolve(domain: str, port: int) -> Sequence[str]:
        del port
        found = await lookups.addresses(domain, owner="domains")
        return [address.partition("%")[0] for address in found]

    return resolve


def asking(*, port: int, judge: DialJudge, resolve: Resolve, served_here: Callable[[str], str | None]) -> Ask:
    """A domain that leads to this very host is not dialled, since what else listens here is not for tenants
    to knock at: `served_here` says which token this platform serves for it."""

    async def ask(domain: str) -> bytes:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                address = await _address(domain, port, judge, resolve)
                if address is not None:
                    return await _get(address, domain, port)
                return _own_answer(domain, served_here(domain))
        except TimeoutError:
            raise _no_answer(domain, f"no answer within {_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise _no_answer(domain, error.strerror or str(error)) from None

    return ask


async def _address(domain: str, port: int, judge: DialJudge, resolve: Resolve) -> str | None:
    """None: the domain leads to this host."""
    try:
        found = await resolve(domain, port)
    except socket.gaierror as error:
        # The name server being away is not the name being gone.
        found_out = None if error.errno == socket.EAI_AGAIN else ELSEWHERE
        raise _no_answer(domain, "the name does not resolve", found_out) from None
    except UnicodeError:
        raise _no_answer(domain, "the name does not resolve") from None
    except TooManyLookups as error:
        raise _no_answer(domain, f"{error}; try again in a moment") from None
    verdicts = {address: judge.judge(address) for address in found}
    for address, verdict in verdicts.items():
        if verdict is Verdict.GOOD:
            return address
    if Verdict.OWN in verdicts.values():
        return None
    raise _no_answer(domain, "it resolves to no public address", ELSEWHERE)


def _own_answer(domain: str, served: str | None) -> bytes:
    if served is None:
        why = "it leads to this platform, which serves no token for it yet; prove it before it leads here"
        raise _no_answer(domain, why)
    return served.encode()


async def _get(address: str, domain: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(address, port, limit=_MAX_ANSWER)
    try:
        ask = f"GET {WELL_KNOWN} HTTP/1.0\r\nHost: {domain}\r\nUser-Agent: sandboxer-domains/1\r\n\r\n"
        writer.write(ask.encode("ascii"))
        raw = b""
        while len(raw) < _MAX_ANSWER and (chunk := await reader.read(_MAX_ANSWER)):
            raw += chunk
    finally:
        writer.close()
    head, _, body = raw.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.[01] ([0-9]{3})", head)
    if status is None or status[1] != b"200":
        # A redirect is what a TLS edge before us answers with; trouble there is no news of the name.
        is_news = status is not None and status[1][:1] == b"4"
        why = f"{WELL_KNOWN} was answered by {head[:40].decode('latin-1')!r}"
        raise _no_answer(domain, why, ELSEWHERE if is_news else None)
    return body


def _no_answer(domain: str, why: str, found_out: str | None = None) -> Conflict:
    return Conflict(
        why=f"{domain} does not serve the token: {why}",
        reason="not_proven",
        found=found_out,
        hint=f"Serve the claim's token at http://{domain}{WELL_KNOWN}, and verify again.",
    )
