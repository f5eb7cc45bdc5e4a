"""Bodies that are read, made and sent in pieces: large texts, downloads, and server-sent events.

In JSON a control character takes six bytes: 64 MiB of zeros made whole would be 400 MB of answer at once, and
nobody else would be served meanwhile. A thread would not help: one call of the encoder keeps the
interpreter's lock to its end. Here few pieces exist at a time, and others have their turn between them. A
download is never held in memory, and one that is cut short never looks complete.

A stream of server-sent events always ends, with its last event or with an `error` event (a problem). A
failure before the first event is an ordinary problem answer. A comment every few seconds keeps proxies from
closing a quiet stream. Output of commands becomes text without ever cutting a character in two.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol, cast

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandboxer.backends.guest import Output, Stream
from sandboxer.edges.http import problems
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.disconnection import until_client_goes
from sandboxer.edges.http.problems import request_id_of
from sandboxer.edges.http.requests import lease_of
from sandboxer.kernel.budget import SMALL, Lease
from sandboxer.kernel.errors import Broken, SandboxerError, host_exhausted
from sandboxer.kernel.program import late
from sandboxer.kernel.values import brief_value_class

if TYPE_CHECKING:
    from sandboxer.wire import processes
else:
    processes = late("sandboxer.wire.processes")

log = logging.getLogger(__name__)
# About half a millisecond as JSON. A multiple of three, so that pieces of base 64 need no padding between
# them.
PIECE = 24 * 1024
# Characters of base 64 read at a time: a multiple of four.
READ = 64 * 1024
EVENT_STREAM = "text/event-stream"
HEARTBEAT_S = 15.0
# After so many events others have their turn, if a stream has that many to send at once.
IN_A_ROW = 16


class Texts:
    """Texts for an answer, such as command output. A large one is replaced by a mark and sent in pieces
    later.
    """

    def __init__(self) -> None:
        self._mark = secrets.token_hex(16)
        self._large: list[Iterator[bytes]] = []

    def of(self, data: bytes | bytearray, encoding: str) -> str:
        """Returns `data` as text, or the mark for it."""
        if len(data) <= SMALL:
            return in_words(data, encoding)
        return self._follows(in_pieces(data, encoding))

    def text(self, text: str) -> str:
        """Returns the text, or the mark for it."""
        return text if len(text) <= PIECE else self._follows(_escaped(text))

    def answer(self, model: BaseModel, status: int = 200) -> Response:
        """Returns an answer that is `model` with a text in place of each mark."""
        return LargeAnswer(self.pieces(model), status) if self.are_large else json_response(model, status)

    @property
    def are_large(self) -> bool:
        return bool(self._large)

    def pieces(self, model: BaseModel) -> Iterator[bytes]:
        """Yields the answer; it can be called once."""
        first, *others = model.model_dump_json().encode().split(self._mark.encode())
        yield first
        for rest in others:
            yield from self._large[int(rest[:8])]
            yield rest[8:]

    def _follows(self, pieces: Iterator[bytes]) -> str:
        self._large.append(pieces)
        return f"{self._mark}{len(self._large) - 1:08}"


class LargeAnswer(Response):
    """Sends JSON in pieces as they are made, and lets others have their turn after each."""

    media_type = "application/json"

    def __init__(self, pieces: Iterator[bytes], status: int = 200) -> None:
        super().__init__(status_code=status)
        del self.headers["content-length"]
        self._pieces = pieces

    async def whole(self, lease: Lease) -> bytes:
        """Returns the answer, for who says it in other words; it can be called once."""
        return await in_turns(self._pieces, lease)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with until_client_goes(receive):
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            lease, began = lease_of(scope), time.monotonic()
            for piece in self._pieces:
                took_s = time.monotonic() - began
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                # Sending waits only for a slow reader; a fast one must not monopolise the loop.
                await lease.in_turn(took_s, len(piece))
                began = time.monotonic()
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def in_turns(pieces: Iterator[bytes], lease: Lease) -> bytes:
    """Joins the pieces, giving others their turn between them; a single piece is returned at once."""
    whole, began = next(pieces), time.monotonic()
    await lease.grow(len(whole))
    parts = [whole]
    for piece in pieces:
        await lease.grow(len(piece))
        parts.append(piece)
        await lease.in_turn(time.monotonic() - began, len(piece))
        began = time.monotonic()
    return b"".join(parts) if len(parts) > 1 else whole


def in_pieces(data: bytes | bytearray, encoding: str) -> Iterator[bytes]:
    """Yields the inside of a JSON string in pieces."""
    view = memoryview(data)
    if encoding != "utf-8":
        for start in range(0, len(data), PIECE):
            yield base64.b64encode(view[start : start + PIECE])
        return
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for start in range(0, len(data), PIECE):
        is_last = start + PIECE >= len(data)
        text = decoder.decode(bytes(view[start : start + PIECE]), final=is_last)
        yield json.dumps(text, ensure_ascii=False)[1:-1].encode()


def _escaped(text: str) -> Iterator[bytes]:
    for start in range(0, len(text), PIECE):
        yield json.dumps(text[start : start + PIECE], ensure_ascii=False)[1:-1].encode()


def in_words(data: bytes | bytearray, encoding: str) -> str:
    return data.decode("utf-8", "replace") if encoding == "utf-8" else base64.b64encode(data).decode()


def in_bytes(text: str, encoding: str) -> bytes:
    """Returns the bytes of a text. Raises ValueError for text that is not base 64."""
    return text.encode() if encoding == "utf-8" else base64.b64decode(text, validate=True)


async def read_bytes(text: str, encoding: str, lease: Lease) -> bytes:
    """Returns the bytes of a text, decoded in pieces. Raises ValueError for text that is not base 64."""
    if encoding == "utf-8" or len(text) <= READ:
        return in_bytes(text, encoding)
    await lease.grow(len(text) // 4 * 3)
    whole = bytearray()
    for start in range(0, len(text), READ):
        began = time.monotonic()
        piece = text[start : start + READ]
        if "=" in piece and start + READ < len(text):
            raise ValueError("it ends before its end")
        whole += in_bytes(piece, encoding)
        await lease.in_turn(time.monotonic() - began)
    return bytes(whole)


class Download(Response):
    """Sends a source: with `length` exactly that many bytes, or the connection breaks; without it, until the
    source ends.
    """

    def __init__(
        self,
        source: AsyncIterator[bytes],
        *,
        headers: Mapping[str, str],
        media_type: str,
        status: int = 200,
        length: int | None = None,
    ) -> None:
        super().__init__(status_code=status, headers=headers, media_type=media_type)
        self._source = cast(AsyncGenerator[bytes, None], source)
        self._length = length
        if length is None:
            del self.headers["content-length"]
        else:
            self.headers["content-length"] = str(length)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Without this watch, sending to a client that went away would succeed to the last byte.
        async with aclosing(self._source) as source, until_client_goes(receive):
            # A failure before the first byte is still answered with an ordinary problem.
            chunk = await anext(source, b"")
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            sent = 0
            try:
                while chunk:
                    # What a file grew by meanwhile is left out: its length was said.
                    chunk = chunk if self._length is None else chunk[: self._length - sent]
                    sent += len(chunk)
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    chunk = b"" if sent == self._length else await anext(source, b"")
            except SandboxerError as error:
                log.warning("download cut short (%s): %s", request_id_of(scope), error)
                return
            if self._length is not None and sent != self._length:
                # The file shrank meanwhile; the answer stays unfinished, so that the client notices.
                log.warning(
                    "download cut short (%s): %d of %d bytes", request_id_of(scope), sent, self._length
                )
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class StreamEvent(Protocol):
    """Something that a stream sends as a whole."""

    @property
    def is_last(self) -> bool:
        """Says whether it ends the stream: then its client need not wait for what is tidied up after it."""

    def pieces(self) -> Iterator[bytes]: ...


@brief_value_class
class ServerEvent:
    name: str
    data: BaseModel | Mapping[str, object]
    id: str | None = None
    # The part of `data` that is too large for one piece.
    texts: Texts | None = None
    is_last: bool = False

    def pieces(self) -> Iterator[bytes]:
        mark = f"id: {self.id}\n" if self.id is not None else ""
        head = f"event: {self.name}\n{mark}data: ".encode()
        if not isinstance(self.data, BaseModel):
            yield head + json.dumps(self.data).encode() + b"\n\n"
        elif self.texts is None or not self.texts.are_large:
            yield head + self.data.model_dump_json().encode() + b"\n\n"
        else:
            yield head
            yield from self.texts.pieces(self.data)
            yield b"\n\n"


class EventStream(Response):
    """Sends events as they come and closes the source when the client goes away."""

    media_type = EVENT_STREAM
    heartbeat = b": \n\n"
    heartbeat_s = HEARTBEAT_S

    def __init__(self, source: AsyncIterator[StreamEvent], *, begin_at_once: bool = False) -> None:
        super().__init__(status_code=200)
        del self.headers["content-length"]
        # Tells proxies not to buffer the stream.
        self.headers["x-accel-buffering"] = "no"
        self._source = cast(AsyncGenerator[StreamEvent, None], source)
        # Whether to answer before the first event, for sources that may stay quiet for long.
        self._begin_at_once = begin_at_once

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._source) as source, until_client_goes(receive):
            first = None if self._begin_at_once else await anext(source, None)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            lease = lease_of(scope)
            beating = asyncio.create_task(self._beat(send))
            is_over = False
            try:
                if first is not None:
                    await _send(send, first, lease)
                is_over = await self._pass_on(source, problems.request_id_of(scope), send, lease, beating)
            finally:
                beating.cancel()
                await asyncio.wait([beating])
            if not is_over:
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pass_on(
        self,
        source: AsyncIterator[StreamEvent],
        request_id: str,
        send: Send,
        lease: Lease,
        beating: asyncio.Task[None],
    ) -> bool:
        """Sends what comes. Says whether the last event ended the answer."""
        sent = 0
        try:
            async for event in source:
                if event.is_last:
                    # Nothing may be sent after it.
                    beating.cancel()
                    await _send(send, event, lease, is_last=True)
                    return True
                await _send(send, event, lease)
                sent += 1
                if sent % IN_A_ROW == 0:
                    # A source that has much to tell never waits by itself, nor does a fast reader.
                    await lease.in_turn(0.0)
        except SandboxerError as error:
            await _send(send, self._problem(problems.document(error, request_id)), lease)
        except Exception as error:
            log.error("stream broke (%s)", request_id, exc_info=error)
            problem = host_exhausted(error) or Broken(why=str(error))
            await _send(send, self._problem(problems.document(problem, request_id)), lease)
        return False

    def _problem(self, problem: Mapping[str, object]) -> StreamEvent:
        """Returns the last event of a stream that failed."""
        return ServerEvent("error", problem)

    async def _beat(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self.heartbeat_s)
            await send({"type": "http.response.body", "body": self.heartbeat, "more_body": True})


async def _send(send: Send, event: StreamEvent, lease: Lease, *, is_last: bool = False) -> None:
    """In one message: a heartbeat, or the word that all is over, must not come into the middle of it."""
    body = await in_turns(event.pieces(), lease)
    await send({"type": "http.response.body", "body": body, "more_body": not is_last})
    lease.shrink(len(body))


class OutputEvents:
    """Turns pieces of two streams into events, and knows the position of each stream."""

    def __init__(self, encoding: str, *, stdout_at: int = 0, stderr_at: int = 0) -> None:
        self._is_text = encoding == "utf-8"
        self._sent = {Stream.STDOUT: stdout_at, Stream.STDERR: stderr_at}
        self._decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in Stream}
        self._held = dict.fromkeys(Stream, 0)

    @property
    def position(self) -> str:
        """Returns what to give as `after` (or Last-Event-ID) to continue from here."""
        return f"{self._sent[Stream.STDOUT]}.{self._sent[Stream.STDERR]}"

    def piece(self, output: Output) -> ServerEvent | None:
        """Returns an event, or None while there is only the beginning of a character."""
        stream = output.stream
        if not self._is_text:
            self._sent[stream] += output.dropped + len(output.data)
            return self._event(stream, base64.b64encode(output.data).decode(), output.dropped)
        text = self._decoders[stream].decode(output.data)
        held = len(self._decoders[stream].getstate()[0])
        self._sent[stream] += output.dropped + len(output.data) + self._held[stream] - held
        self._held[stream] = held
        return self._event(stream, text, output.dropped) if text or output.dropped else None

    def rest(self) -> list[ServerEvent]:
        """Returns what an unfinished character leaves behind at the very end."""
        events = []
        for stream in Stream:
            if text := self._decoders[stream].decode(b"", final=True):
                self._sent[stream] += self._held[stream]
                self._held[stream] = 0
                events.append(self._event(stream, text, 0))
        return events

    def _event(self, stream: Stream, data: str, dropped: int) -> ServerEvent:
        texts = Texts()
        shown = processes.ExecOutput.model_construct(
            data=texts.text(data), dropped=dropped, offset=self._sent[stream]
        )
        return ServerEvent(stream.value, shown, self.position, texts)
