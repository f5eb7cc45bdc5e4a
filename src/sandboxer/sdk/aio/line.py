"""Carries calls over HTTP, with asyncio.

Answers that come in pieces over a line, with asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import httpx

from sandboxer.sdk.aio.native import feed, pause
from sandboxer.sdk.bodies import CHUNK, Progress, appearing
from sandboxer.sdk.call import Answer, Call
from sandboxer.sdk.commands import EventParser, ServerEvent
from sandboxer.sdk.confirmation import Confirmer
from sandboxer.sdk.credentials import Credentials, trust_for
from sandboxer.sdk.errors import Unreachable
from sandboxer.sdk.exchange import Again, Payer, Signer, Tries

T = TypeVar("T")


class Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=Page)


class AsyncLine:
    """One signed, kept-alive connection pool to one platform."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout_s: float = 60.0,
        confirm: Confirmer | None = None,
        payer: Payer | None = None,
    ) -> None:
        self.signer = Signer(credentials, confirm=confirm, payer=payer)
        self.url = credentials.url.rstrip("/")
        self.timeout_s = timeout_s
        # Environment proxies are for the web; the platform is named explicitly.
        timeout = httpx.Timeout(timeout_s, connect=10.0)
        self._http = httpx.AsyncClient(timeout=timeout, trust_env=False, verify=trust_for(self.url))

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send, wait for the whole answer, read it. Raises a typed error."""
        async with self.open(call) as response:
            content = await _content(response)
        answer = Answer(response.status_code, response.headers, content)
        self.signer.learn_key(answer)
        return call.read(answer)

    @asynccontextmanager
    async def open(self, call: Call[T]) -> AsyncIterator[httpx.Response]:
        """Send and hand over the answer's stream as soon as its head says success."""
        response = await self._accepted(call)
        try:
            yield response
        except httpx.TransportError as error:
            raise _unreachable(self.url, error) from error
        finally:
            await response.aclose()

    async def _accepted(self, call: Call[T]) -> httpx.Response:
        tries = Tries(self.signer, call)
        while True:
            again: Again | None
            try:
                response = await self._http.send(self._request(tries.call), stream=True)
                if response.status_code < 400 or response.status_code in call.also_reads:
                    return response
                content = await _content(response)
                again = tries.after_answer(response.status_code, response.headers, content)
            except httpx.TransportError as error:
                again = tries.after_lost()
                if again is None:
                    raise _unreachable(self.url, error) from error
            await pause(again.pause_s)

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


async def _content(response: httpx.Response) -> bytes:
    try:
        return await response.aread()
    finally:
        await response.aclose()


def _unreachable(url: str, error: Exception) -> Unreachable:
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return Unreachable(f"{url} did not answer in time.", next_step="Try again, or allow more time.")
    return Unreachable(f"Could not reach {url}: {str(error) or type(error).__name__}.")


async def server_events(line: AsyncLine, call: Call[T]) -> AsyncIterator[ServerEvent]:
    parser = EventParser()
    async with line.open(call) as response:
        async for text in response.aiter_lines():
            if event := parser.feed(text):
                yield event


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


async def pages(line: AsyncLine, call: Callable[[str | None], Call[P]]) -> AsyncIterator[P]:
    """Yields page after page, each by a call that names where the one before it ended."""
    cursor: str | None = None
    while True:
        page = await line.send(call(cursor))
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return
