"""E2B's code interpreter, over our sessions: a context is a session in the sandbox, an execution is a cell.

Code without a context runs in the default one of its language, which is made when it is first needed.
"""

from __future__ import annotations

import codecs
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from starlette.responses import Response

from sandboxer.edges.e2b.answers import answer
from sandboxer.edges.e2b.users import HOME
from sandboxer.edges.http.authentication import Shape
from sandboxer.edges.http.binding import Asked, AskedPathBody, bind
from sandboxer.edges.http.bodies import EventStream, StreamEvent
from sandboxer.kernel.budget import SMALL
from sandboxer.kernel.errors import InvalidRequest, NotFound, TooLarge
from sandboxer.kernel.values import brief_value_class
from sandboxer.wire.e2b import envd, operations
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wire.sessions import CELL_TIMEOUT_MAX_S
from sandboxer.work.sessions.cells import Cell, Part, Text
from sandboxer.work.sessions.records import Session, State
from sandboxer.work.sessions.use_cases import WantedSession

_ANY = Asked[Any, Any, Any]
_DEFAULT = "e2b-default"
_LIVING = frozenset({State.STARTING, State.READY})
_STREAMS = {1: "stdout", 2: "stderr"}
_FORMATS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "text/latex": "latex",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "application/javascript": "javascript",
}
_MOST = 100


@brief_value_class
class Line:
    """One line of JSON of a stream."""

    text: bytes

    def pieces(self) -> Iterator[bytes]:
        yield self.text


def _line(said: Mapping[str, Any]) -> Line:
    return Line(json.dumps(said).encode() + b"\n")


class LineStream(EventStream):
    media_type = "application/x-ndjson"
    # Clients pass over kinds that they do not know.
    heartbeat = b'{"type": "keepalive"}\n'

    def _problem(self, problem: Mapping[str, Any]) -> StreamEvent:
        return _line(_error(str(problem["title"]), str(problem["detail"]), str(problem["next_step"])))


async def execute(asked: AskedPathBody[SandboxPath, envd.Execute]) -> Response:
    body = asked.body
    if body.env_vars:
        raise InvalidRequest(field="env_vars", why="variables are set in the code here, not beside it")
    session = await _context(asked, body.language or "python", body.context_id)
    cell = await asked.platform.sessions.submit(
        session.id, asked.caller, body.code, timeout_s=CELL_TIMEOUT_MAX_S
    )
    return LineStream(_lines(asked, session.id, cell), begin_at_once=True)


async def create_context(asked: AskedPathBody[SandboxPath, envd.NewContext]) -> Response:
    return answer(_shown(await _new(asked, asked.body.language or "python", asked.body.cwd, None)), 201)


async def list_contexts(asked: Asked[SandboxPath]) -> Response:
    return answer([_shown(session) for session in await _sessions(asked)])


async def end_context(asked: Asked[operations.ContextPath]) -> Response:
    session = await _found(asked, asked.path.context_id)
    await asked.platform.sessions.end(session.id, asked.caller)
    return Response(status_code=204)


async def restart_context(asked: Asked[operations.ContextPath]) -> Response:
    session = await _found(asked, asked.path.context_id)
    await asked.platform.sessions.restart(session.id, asked.caller)
    return Response(status_code=204)


async def _context(asked: _ANY, language: str, context_id: str | None) -> Session:
    if context_id is not None:
        return await _found(asked, context_id)
    for session in await _sessions(asked):
        if session.name == _DEFAULT and session.language == language and session.state in _LIVING:
            return session
    return await _new(asked, language, None, _DEFAULT)


async def _new(asked: _ANY, language: str, cwd: str | None, name: str | None) -> Session:
    wanted = WantedSession(
        language=language, sandbox_id=asked.path.sandbox_id, name=name, cwd=cwd or HOME, env={"HOME": HOME}
    )
    return await asked.platform.sessions.create(wanted, asked.caller)


async def _sessions(asked: _ANY) -> list[Session]:
    page = await asked.platform.sessions.list(
        asked.caller, sandbox_id=asked.path.sandbox_id, state=None, cursor=None, limit=_MOST
    )
    return [session for session in page.records if session.state is not State.ENDED]


async def _found(asked: _ANY, context_id: str) -> Session:
    session = await asked.platform.sessions.get(context_id, asked.caller)
    if session.sandbox_id != asked.path.sandbox_id:
        raise NotFound(what="context", id=context_id)
    return session


async def _lines(asked: _ANY, session_id: str, cell: Cell) -> AsyncIterator[StreamEvent]:
    decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in _STREAMS}
    try:
        async for _, part in cell.follow():
            # A large one, such as a picture, is put into words beside the loop.
            line = await asked.lease.work(_size(part), partial(_part, part, decoders))
            if line is not None:
                yield line
    finally:
        if not cell.over.is_set():
            # Its client has left, most often because it took too long: the next one is not to wait for it.
            await asked.platform.sessions.interrupt(session_id, asked.caller)
    if cell.fault is not None:
        yield _line(_error(cell.fault.name, cell.fault.message, cell.fault.traceback))
    yield _line({"type": "number_of_executions", "execution_count": cell.n})


def _size(part: Part) -> int:
    return len(part.data) if isinstance(part, Text) else sum(map(len, part.mimes.values()))


def _part(part: Part, decoders: Mapping[int, codecs.IncrementalDecoder]) -> Line | None:
    if isinstance(part, Text):
        text = decoders[part.stream].decode(part.data)
        said = {"type": _STREAMS[part.stream], "text": text, "timestamp": time.time_ns()}
        return _line(said) if text else None
    known: dict[str, Any] = {_FORMATS[kind]: value for kind, value in part.mimes.items() if kind in _FORMATS}
    with suppress(KeyError, ValueError, RecursionError, TooLarge):
        known["json"] = _json(part.mimes["application/json"])
    # What the code itself comes to is a text; what it shows on the way is a picture.
    return _line({"type": "result", "is_main_result": "text" in known, **known})


def _json(text: str) -> Any:
    """Returns JSON that a program inside made, which is whatever it likes. Raises ValueError, RecursionError,
    and TooLarge for more structure than a request may have: reading it would stop everybody else.
    """
    if len(text) > SMALL:
        Shape().feed(text.encode("utf-8", "replace"))
    return json.loads(text)


def _error(name: str, value: str, traceback: str) -> dict[str, str]:
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def _shown(session: Session) -> envd.Context:
    return envd.Context.model_construct(id=session.id, language=session.language, cwd=session.cwd or HOME)


BINDINGS = (
    bind(operations.EXECUTE, execute),
    bind(operations.CREATE_CONTEXT, create_context),
    bind(operations.CONTEXTS, list_contexts),
    bind(operations.END_CONTEXT, end_context),
    bind(operations.RESTART_CONTEXT, restart_context),
)
