"""Is it well? One look through the supervisor at the port the service should listen on.

Every byte of the answer is hostile: it is read up to a bound, within a time, and only its first line counts.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from sandboxer.backends.guest import Connection, Guest
from sandboxer.kernel.errors import GuestRefused, SandboxerError
from sandboxer.work.services.specs import Health

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r]")
_MAX_HEAD = 4096


@dataclass(frozen=True, slots=True)
class Verdict:
    is_well: bool
    why: str


async def look(guest: Guest, port: int, health: Health) -> Verdict:
    """Never raises for what the service or its sandbox does."""
    try:
        async with asyncio.timeout(health.timeout_s):
            connection = await guest.connect(port)
            try:
                if health.path is None:
                    return Verdict(True, f"it takes connections on port {port}")
                return await _ask(connection, health.path)
            finally:
                await connection.close()
    except TimeoutError:
        return Verdict(False, f"no answer on port {port} within {health.timeout_s:g} s")
    except GuestRefused:
        return Verdict(False, f"nothing listens on port {port}")
    except SandboxerError as error:
        return Verdict(False, f"its sandbox does not answer: {error}")


async def _ask(connection: Connection, path: str) -> Verdict:
    ask = (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: sandboxer-health\r\nConnection: close\r\n\r\n"
    )
    await connection.write(ask.encode("ascii", "replace"))
    head = b""
    while b"\n" not in head and len(head) < _MAX_HEAD:
        chunk = await connection.read(_MAX_HEAD)
        if not chunk:
            break
        head += chunk
    line = head.split(b"\n", 1)[0]
    status = _STATUS.match(line)
    if status is None:
        shown = "nothing" if not line else repr(line[:60].decode("latin-1"))
        return Verdict(False, f"it answered GET {path} with {shown}, which is not HTTP")
    code = int(status[1])
    return Verdict(200 <= code < 400, f"it answered GET {path} with {code}")
