# Written by scripts/generate-sync from sdk/aio/line.py. Do not edit.
"""Carries calls over HTTP, blocking.

Answers that come in pieces over a line, blocking.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self, TypeVar

import httpx

from sandboxer.sdk.bodies import CHUNK, Progress, appearing
from sandboxer.sdk.call import Answer, Call
from sandboxer.sdk.commands import EventParser, ServerEvent
from sandboxer.sdk.confirmation import Confirmer
from sandboxer.sdk.credentials import Credentials, socket_of, trust_for
from sandboxer.sdk.errors import BrokenAnswer, Unreachable
from sandboxer.sdk.exchange import Payer, Signer, Tries
from sandboxer.sdk.sync.native import feed, pause

T = TypeVar("T")
# An answer that is held whole: 64 MiB of a command's output can take six times as much as JSON. Files of any
# size are downloaded, not held.
MOST_HELD = 1 << 30
MOST_PROBLEM = 1 << 20


class Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=Page)


class Line:
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
        by = None if self.socket is None else httpx.HTTPTransport(uds=self.socket)
        self._http = httpx.Client(timeout=timeout, trust_env=False, verify=trust_for(self.url), transport=by)

    def close(self) -> None:
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Sends, waits for the whole answer, reads it. Raises a typed error."""
        with self.open(call) as response:
            content = _content(response, MOST_HELD)
        answer = Answer(response.status_code, response.headers, content)
        self.signer.learn_key(answer)
        return call.read(answer)

    @contextmanager
    def open(self, call: Call[T]) -> Iterator[httpx.Response]:
        """Sends, and hands over the answer's stream as soon as its head says success."""
        response = self._accepted(call)
        try:
            yield response
        except httpx.TransportError as error:
            raise _unreachable(self.socket or self.url, error) from error
        finally:
            response.close()

    def _accepted(self, call: Call[T]) -> httpx.Response:
        tries = Tries(self.signer, call)
        while True:
            pause_s: float | None
            try:
                response = self._http.send(self._request(tries.call), stream=True)
                if response.status_code < 400 or response.status_code in call.also_reads:
                    return response
                content = _content(response, MOST_PROBLEM)
                pause_s = tries.after_answer(response.status_code, response.headers, content)
            except httpx.TransportError as error:
                if (pause_s := tries.after_lost()) is None:
                    raise _unreachable(self.socket or self.url, error) from error
            pause(pause_s)

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


class Scope:
    """What a block of `with` ends by `_leave`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        raise NotImplementedError


class Noun:
    """What the platform is asked about one noun."""

    def __init__(self, line: Line) -> None:
        self._line = line


class NounInside(Noun):
    """What the platform is asked about one noun of one sandbox."""

    def __init__(self, line: Line, sandbox_id: str) -> None:
        super().__init__(line)
        self._id = sandbox_id


def _content(response: httpx.Response, most: int) -> bytes:
    """Returns a whole answer. Raises BrokenAnswer for one that does not end, however well it is packed."""
    content = bytearray()
    try:
        for piece in response.iter_bytes():
            content += piece
            if len(content) > most:
                raise BrokenAnswer(f"The answer is longer than {most >> 20} MiB.")
        return bytes(content)
    finally:
        response.close()


def _unreachable(url: str, error: Exception) -> Unreachable:
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return Unreachable(f"{url} did not answer in time.", next_step="Try again, or allow more time.")
    why = re.sub(r"\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
    return Unreachable(f"Could not reach {url}: {why.rstrip('.')}.")


def server_events(line: Line, call: Call[T]) -> Iterator[ServerEvent]:
    parser = EventParser()
    with line.open(call) as response:
        for piece in response.iter_bytes():
            yield from parser.feed(piece)


def told(line: Line, call: Call[object], read: Callable[[ServerEvent], T | None]) -> Iterator[T]:
    """Yields what `read` makes of each event; None is of no interest."""
    for event in server_events(line, call):
        if (found := read(event)) is not None:
            yield found


def pieces(line: Line, call: Call[bytes]) -> Iterator[bytes]:
    with line.open(call) as response:
        yield from response.iter_raw(CHUNK)


def saved(chunks: Iterator[bytes], to: Path, progress: Progress | None) -> int:
    """Keep them in a local file, which appears when it is complete; returns its size."""
    size = 0
    with appearing(to) as file:
        for chunk in chunks:
            file.write(chunk)
            size += len(chunk)
            if progress is not None:
                progress(len(chunk))
    return size


def items(line: Line, call: Callable[[str | None], Call[P]], of: Callable[[P], Sequence[T]]) -> Iterator[T]:
    """Yields what is in page after page, each by a call that names where the one before it ended."""
    cursor: str | None = None
    while True:
        page = line.send(call(cursor))
        yield from of(page)
        if (cursor := page.next_cursor) is None:
            return
