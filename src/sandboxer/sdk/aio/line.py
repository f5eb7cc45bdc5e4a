"""Carries calls over HTTP, with asyncio.

Answers that come in pieces over a line, with asyncio.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar

import httpx

from sandboxer.sdk.aio.native import feed, pause
from sandboxer.sdk.bodies import CHUNK, Progress, appearing
from sandboxer.sdk.call import Answer, Call
from sandboxer.sdk.commands import EventParser, ServerEvent
from sandboxer.sdk.confirmation import Confirmer
from sandboxer.sdk.credentials import Credentials, socket_of, trust_for
from sandboxer.sdk.errors import BrokenAnswer, Unreachable
from sandboxer.sdk.exchange import Payer, Signer, Tries

T = TypeVar("T")
# An answer that is held whole: 64 MiB of a command's output can take six times as much as JSON. Files of any
# size are downloaded, not held.
MOST_HELD = 1 << 30
MOST_PROBLEM = 1 << 20


class Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=Page)


class AsyncLine:
    """It keeps signed connections to one platform alive."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout_s: float = 60.0,
        confirm: Confirmer | None = None,
        payer: Payer | None = None,
    ) -> None:
        self.signer = Signer(credentials, confirm=confirm, payer=payer)
        # Where requests go by a socket of this machine, their address needs a name all the same.
        self.socket = socket_of(credentials.url)
        self.url = credentials.url.rstrip("/") if self.socket is None else "http://localhost"
        self.timeout_s = timeout_s
        # Environment proxies are for the web; the platform is named explicitly.
        timeout = httpx.Timeout(timeout_s, connect=10.0)
        by = None if self.socket is None else httpx.AsyncHTTPTransport(uds=self.socket)
        self._http = httpx.AsyncClient(
            timeout=timeout, trust_env=False, verify=trust_for(self.url), transport=by
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Sends, waits for the whole answer, reads it. Raises a typed error."""
        async with self.open(call) as response:
            content = await _content(response, MOST_HELD)
        answer = Answer(response.status_code, response.headers, content)
        self.signer.learn_key(answer)
        return call.read(answer)

    @asynccontextmanager
    async def open(self, call: Call[T]) -> AsyncIterator[httpx.Response]:
        """Sends, and hands over the answer's stream as soon as its head says success."""
        response = await self._accepted(call)
        try:
            yield response
        except httpx.TransportError as error:
            raise _unreachable(self.socket or self.url, error) from error
        finally:
            await response.aclose()

    async def _accepted(self, call: Call[T]) -> httpx.Response:
        tries = Tries(self.signer, call)
        while True:
            pause_s: float | None
            try:
                response = await self._http.send(self._request(tries.call), stream=True)
                if response.status_code < 400 or response.status_code in call.also_reads:
                    return response
                content = await _content(response, MOST_PROBLEM)
                pause_s = tries.after_answer(response.status_code, response.headers, content)
            except httpx.TransportError as error:
                if (pause_s := tries.after_lost()) is None:
                    raise _unreachable(self.socket or self.url, error) from error
            await pause(pause_s)

    def _request(self, call: Call[T]) -> httpx.Request:
        timeout = httpx.Timeout(call.timeout_s or self.timeout_s, connect=10.0)
        return httpx.Request(
            call.method,
            self.url + call.target,
            headers=self.signer.headers(call),
            content=feed(call.body.open()) if call.body.length else None,
            # The signed bytes are the sent bytes: httpx must not re-quote the path.
            extensions={"target": call.target.encode(), "timeout": timeout.as_dict()},
        )


class AsyncScope:
    """What a block of `async with` ends by `_leave`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave()

    async def _leave(self) -> None:
        raise NotImplementedError


class AsyncNoun:
    """What the platform is asked about one noun."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line


class AsyncNounInside(AsyncNoun):
    """What the platform is asked about one noun of one sandbox."""

    def __init__(self, line: AsyncLine, sandbox_id: str) -> None:
        super().__init__(line)
        self._id = sandbox_id


async def _content(response: httpx.Response, most: int) -> bytes:
    """Returns a whole answer. Raises BrokenAnswer for one that does not end, however well it is packed."""
    content = bytearray()
    try:
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > most:
                raise BrokenAnswer(f"The answer is longer than {most >> 20} MiB.")
        return bytes(content)
    finally:
        await response.aclose()


def _unreachable(url: str, error: Exception) -> Unreachable:
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return Unreachable(f"{url} did not answer in time.", next_step="Try again, or allow more time.")
    why = re.sub(r"\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
    return Unreachable(f"Could not reach {url}: {why.rstrip('.')}.")


async def server_events(line: AsyncLine, call: Call[T]) -> AsyncIterator[ServerEvent]:
    parser = EventParser()
    async with line.open(call) as response:
        async for piece in response.aiter_bytes():
            for event in parser.feed(piece):
                yield event


async def told(
    line: AsyncLine, call: Call[object], read: Callable[[ServerEvent], T | None]
) -> AsyncIterator[T]:
    """Yields what `read` makes of each event; None is of no interest."""
    async for event in server_events(line, call):
        if (found := read(event)) is not None:
            yield found


async def pieces(line: AsyncLine, call: Call[bytes]) -> AsyncIterator[bytes]:
    async with line.open(call) as response:
        async for chunk in response.aiter_raw(CHUNK):
            yield chunk


async def saved(chunks: AsyncIterator[bytes], to: Path, progress: Progress | None) -> int:
    """Keep them in a local file, which appears when it is complete; returns its size."""
    size = 0
    with appearing(to) as file:
        async for chunk in chunks:
            file.write(chunk)
            size += len(chunk)
            if progress is not None:
                progress(len(chunk))
    return size


async def items(
    line: AsyncLine, call: Callable[[str | None], Call[P]], of: Callable[[P], Sequence[T]]
) -> AsyncIterator[T]:
    """Yields what is in page after page, each by a call that names where the one before it ended."""
    cursor: str | None = None
    while True:
        page = await line.send(call(cursor))
        for found in of(page):
            yield found
        if (cursor := page.next_cursor) is None:
            return
