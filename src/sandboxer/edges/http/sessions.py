"""Sessions and cells as the words of the wire."""

from __future__ import annotations

import base64
import codecs
from collections.abc import AsyncIterator
from typing import Any

from sandboxer.edges.http.sse import ServerEvent
from sandboxer.edges.http.streams import in_words
from sandboxer.kernel.durations import format_duration
from sandboxer.wire import sessions as wire
from sandboxer.work.sessions import records
from sandboxer.work.sessions.cells import Cell, Text
from sandboxer.work.sessions.lifecycle import State
from sandboxer.work.sessions.sessions import Sessions

_STREAMS = {1: "stdout", 2: "stderr"}


def shown_session(session: records.Session, sessions: Sessions) -> wire.Session:
    return wire.Session.model_construct(
        id=session.id,
        name=session.name,
        language=session.language,
        state=_state(session, sessions),
        reason=session.reason,
        sandbox_id=session.sandbox_id,
        owns_sandbox=session.owns_sandbox,
        generation=session.generation,
        cells=sessions.cell_count(session),
        idle=format_duration(session.idle),
        created_at=session.created_at,
        expires_at=session.expires_at,
        last_active_at=session.last_active_at,
        ended_at=session.ended_at,
    )


def shown_cell(cell: Cell, encoding: str) -> wire.Cell:
    return wire.Cell.model_construct(
        **_facts(cell),
        code=cell.code,
        stdout=in_words(cell.text(1), encoding),
        stderr=in_words(cell.text(2), encoding),
        results=[dict(mimes) for mimes in cell.results()],
        encoding=encoding,
    )


def shown_end(cell: Cell) -> wire.CellEnd:
    return wire.CellEnd.model_construct(**_facts(cell))


async def cell_events(cell: Cell, encoding: str, after: int) -> AsyncIterator[ServerEvent]:
    """`cell`, then each piece with its number as event id, then `done`. A reader who comes back names the
    last number it saw; a character that was cut in two by then shows as U+FFFD."""
    yield ServerEvent("cell", shown_end(cell))
    decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in _STREAMS}
    async for number, part in cell.follow(after):
        if not isinstance(part, Text):
            yield ServerEvent("result", wire.CellResult.model_construct(data=dict(part.mimes)), str(number))
            continue
        is_text = encoding == "utf-8"
        data = decoders[part.stream].decode(part.data) if is_text else base64.b64encode(part.data).decode()
        if data:
            shown = wire.CellOutput.model_construct(data=data)
            yield ServerEvent(_STREAMS[part.stream], shown, str(number))
    for stream, name in _STREAMS.items():
        if rest := decoders[stream].decode(b"", final=True):
            yield ServerEvent(name, wire.CellOutput.model_construct(data=rest))
    yield ServerEvent("done", shown_end(cell))


def _facts(cell: Cell) -> dict[str, Any]:
    fault = cell.fault
    error = None
    if fault is not None:
        error = wire.CellError.model_construct(
            name=fault.name, message=fault.message, traceback=fault.traceback
        )
    return {
        "n": cell.n,
        "status": cell.status.value,
        "error": error,
        "exit_code": cell.exit_code,
        "truncated": cell.truncated,
        "asked_at": cell.asked_at,
        "began_at": cell.began_at,
        "ended_at": cell.ended_at,
        "duration_ms": cell.duration_ms,
    }


def _state(session: records.Session, sessions: Sessions) -> str:
    if session.state is not State.READY:
        return session.state.value
    if sessions.is_frozen(session):
        return "frozen"
    return "busy" if sessions.is_busy(session) else "ready"
