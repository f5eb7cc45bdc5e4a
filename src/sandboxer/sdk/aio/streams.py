"""Server-sent events over a line, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.calls import Call
from sandboxer.sdk.sse import EventParser, ServerEvent


async def server_events(line: AsyncLine, call: Call[None]) -> AsyncIterator[ServerEvent]:
    parser = EventParser()
    async with line.open(call) as response:
        async for text in response.aiter_lines():
            if event := parser.feed(text):
                yield event
