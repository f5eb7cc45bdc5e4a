"""Server-sent events: a stream that always ends, with its last event or with an `error` event (a problem).

What fails before the first event is an ordinary problem answer. A comment every few seconds keeps proxies
from closing a quiet stream.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandboxer.edges.http import problems
from sandboxer.edges.http.disconnect import until_client_goes
from sandboxer.kernel.errors import Broken, SandboxerError
from sandboxer.kernel.exhaustion import host_exhausted

log = logging.getLogger(__name__)
EVENT_STREAM = "text/event-stream"
HEARTBEAT_S = 15.0


@dataclass(frozen=True, slots=True)
class ServerEvent:
    name: str
    data: BaseModel | Mapping[str, object]
    id: str | None = None

    def encode(self) -> bytes:
        body = self.data.model_dump_json() if isinstance(self.data, BaseModel) else json.dumps(self.data)
        mark = f"id: {self.id}\n" if self.id is not None else ""
        return f"event: {self.name}\n{mark}data: {body}\n\n".encode()


class EventStream(Response):
    """Sends events as they come and closes the source when the client goes away."""

    media_type = EVENT_STREAM

    def __init__(self, source: AsyncIterator[ServerEvent], *, begin_at_once: bool = False) -> None:
        super().__init__(status_code=200, media_type=EVENT_STREAM)
        del self.headers["content-length"]
        # Not to be held back by a proxy that buffers.
        self.headers["x-accel-buffering"] = "no"
        self._source = cast(AsyncGenerator[ServerEvent, None], source)
        # Answer before the first event, for sources that may stay quiet for long.
        self._begin_at_once = begin_at_once

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._source) as source, until_client_goes(receive):
            first = None if self._begin_at_once else await anext(source, None)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            beating = asyncio.create_task(_beat(send))
            try:
                if first is not None:
                    await _send(send, first)
                await self._pass_on(source, problems.request_id_of(scope), send)
            finally:
                beating.cancel()
                await asyncio.wait([beating])
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pass_on(self, source: AsyncIterator[ServerEvent], request_id: str, send: Send) -> None:
        try:
            async for event in source:
                await _send(send, event)
        except SandboxerError as error:
            await _send(send, ServerEvent("error", problems.document(error, request_id)))
        except Exception as error:
            log.error("stream broke (%s)", request_id, exc_info=error)
            told = host_exhausted(error) or Broken(why=str(error))
            await _send(send, ServerEvent("error", problems.document(told, request_id)))


async def _send(send: Send, event: ServerEvent) -> None:
    await send({"type": "http.response.body", "body": event.encode(), "more_body": True})


async def _beat(send: Send) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        await send({"type": "http.response.body", "body": b": \n\n", "more_body": True})
