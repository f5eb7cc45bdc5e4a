"""Server-sent events over a line, blocking."""

from __future__ import annotations

from collections.abc import Iterator

from sandboxer.sdk.calls import Call
from sandboxer.sdk.sse import EventParser, ServerEvent
from sandboxer.sdk.sync.line import Line


def server_events(line: Line, call: Call[None]) -> Iterator[ServerEvent]:
    parser = EventParser()
    with line.open(call) as response:
        for text in response.iter_lines():
            if event := parser.feed(text):
                yield event
