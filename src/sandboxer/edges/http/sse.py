"""Server-sent events: a stream that always ends, with its last event or with an `error` event (a problem).

A failure before the first event is an ordinary problem answer. A comment every few seconds keeps proxies from
closing a quiet stream. Output of commands becomes text without ever cutting a character in two.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandboxer.backends.guest import Output, Stream
from sandboxer.edges.http import problems
from sandboxer.edges.http.bodies import Texts, in_turns
from sandboxer.edges.http.disconnection import until_client_goes
from sandboxer.edges.http.requests import lease_of
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import Broken, SandboxerError, host_exhausted
from sandboxer.wire.processes import ExecOutput

log = logging.getLogger(__name__)
EVENT_STREAM = "text/event-stream"
HEARTBEAT_S = 15.0


@dataclass(frozen=True, slots=True)
class ServerEvent:
    name: str
    data: BaseModel | Mapping[str, object]
    id: str | None = None
    # The part of `data` that is too large for one piece.
    texts: Texts | None = None

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

    def __init__(self, source: AsyncIterator[ServerEvent], *, begin_at_once: bool = False) -> None:
        super().__init__(status_code=200, media_type=EVENT_STREAM)
        del self.headers["content-length"]
        # Tells proxies not to buffer the stream.
        self.headers["x-accel-buffering"] = "no"
        self._source = cast(AsyncGenerator[ServerEvent, None], source)
        # Whether to answer before the first event, for sources that may stay quiet for long.
        self._begin_at_once = begin_at_once

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._source) as source, until_client_goes(receive):
            first = None if self._begin_at_once else await anext(source, None)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            lease = lease_of(scope)
            beating = asyncio.create_task(_beat(send))
            try:
                if first is not None:
                    await _send(send, first, lease)
                await self._pass_on(source, problems.request_id_of(scope), send, lease)
            finally:
                beating.cancel()
                await asyncio.wait([beating])
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pass_on(
        self, source: AsyncIterator[ServerEvent], request_id: str, send: Send, lease: Lease
    ) -> None:
        try:
            async for event in source:
                await _send(send, event, lease)
        except SandboxerError as error:
            await _send(send, ServerEvent("error", problems.document(error, request_id)), lease)
        except Exception as error:
            log.error("stream broke (%s)", request_id, exc_info=error)
            problem = host_exhausted(error) or Broken(why=str(error))
            await _send(send, ServerEvent("error", problems.document(problem, request_id)), lease)


async def _send(send: Send, event: ServerEvent, lease: Lease) -> None:
    """In one message: a heartbeat, or the word that all is over, must not come into the middle of it."""
    body = await in_turns(event.pieces(), lease)
    await send({"type": "http.response.body", "body": body, "more_body": True})
    lease.shrink(len(body))


async def _beat(send: Send) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        await send({"type": "http.response.body", "body": b": \n\n", "more_body": True})


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
        shown = ExecOutput.model_construct(data=texts.text(data), dropped=dropped, offset=self._sent[stream])
        return ServerEvent(stream.value, shown, self.position, texts)
