"""E2B's code interpreter, over our sessions: a context is a session in the sandbox, an execution is a cell.

Code without a context runs in the default one of its language, which is made when it is first needed; those
that E2B always has are listed before, by names that stand for them.
"""

from __future__ import annotations

import codecs
import json
import shlex
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from starlette.responses import Response

from sandboxer.edges.e2b.answers import RUNNING, answer
from sandboxer.edges.e2b.connect import is_of_sandbox
from sandboxer.edges.e2b.sandboxes import bind_inside
from sandboxer.edges.e2b.users import HOME
from sandboxer.edges.http.binding import Asked, AskedPathBody, bind
from sandboxer.edges.http.bodies import EventStream, StreamEvent
from sandboxer.edges.http.disconnection import ClientGone
from sandboxer.kernel.budget import Shape
from sandboxer.kernel.errors import InvalidRequest, NotAvailable, NotFound, TooLarge
from sandboxer.kernel.values import brief_value_class
from sandboxer.wire.e2b import envd, operations
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wire.sessions import CELL_TIMEOUT_MAX_S
from sandboxer.work.sessions.cells import Cell, Part, Status, Text
from sandboxer.work.sessions.interpreters import find_interpreter
from sandboxer.work.sessions.records import Session, State
from sandboxer.work.sessions.use_cases import WantedSession

_ANY = Asked[Any, Any, Any]
_DEFAULT = "e2b-default"
# Languages whose default context E2B has from the beginning.
_ALWAYS = ("python", "javascript")
# How a variable is set, how it is dropped, and how its value is written, by language.
_SETTERS: Mapping[str, tuple[str, str, Callable[[str], str]]] = {
    "python": ("__import__('os').environ['%s'] = %s", "__import__('os').environ.pop('%s', None)", repr),
    "javascript": ("process.env['%s'] = %s", "delete process.env['%s']", json.dumps),
    "typescript": ("process.env['%s'] = %s", "delete process.env['%s']", json.dumps),
    "r": ("Sys.setenv('%s' = %s)", "Sys.unsetenv('%s')", json.dumps),
    "java": ('System.setProperty("%s", %s);', 'System.clearProperty("%s");', json.dumps),
    "bash": ("export %s=%s", "unset %s", shlex.quote),
}
_LIVING = frozenset({State.STARTING, State.READY})
# How cells end whose interpreter is gone, while they ran and while they waited.
_GONE = frozenset({Status.DIED, Status.CANCELLED})
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
# Forms that are values and no texts.
_VALUES = {"application/json": "json", "e2b/data": "data", "e2b/chart": "chart"}
_MOST = 100


@brief_value_class
class Line:
    """One line of JSON of a stream."""

    text: bytes
    is_last: bool = False

    def pieces(self) -> Iterator[bytes]:
        yield self.text


def _line(said: Mapping[str, Any]) -> Line:
    return Line(json.dumps(said).encode() + b"\n")


class LineStream(EventStream):
    media_type = "application/x-ndjson"
    # Clients pass over kinds that they do not know.
    heartbeat = b'{"type": "keepalive"}\n'

    def _problem(self, problem: Mapping[str, Any]) -> StreamEvent:
        if is_of_sandbox(problem):
            # Clients look for a sandbox that is gone when an answer breaks off, and not when it says so.
            raise ClientGone
        return _line(_error(str(problem["title"]), str(problem["detail"]), str(problem["next_step"])))


async def execute(asked: AskedPathBody[SandboxPath, envd.Execute]) -> Response:
    body = asked.body
    session = await _context(asked, body.language or "python", body.context_id)
    record = await asked.platform.sandboxes.visible(session.sandbox_id, asked.caller)
    code = _dedented(body.code) if session.language == "python" else body.code
    cells = [code]
    if body.env_vars:
        meanwhile, after = _variables(session.language, body.env_vars, record.env)
        cells = [meanwhile, code, after]
    submitted = [
        await asked.platform.sessions.submit(session.id, asked.caller, one, timeout_s=CELL_TIMEOUT_MAX_S)
        for one in cells
    ]
    cell = submitted[len(submitted) // 2]
    return LineStream(_lines(asked, session, cell), begin_at_once=True)


def _dedented(code: str) -> str:
    """Returns code without the indentation that all of it has: notebooks take it, Python does not."""
    return textwrap.dedent(code) if code.lstrip("\n")[:1].isspace() else code


def _variables(language: str, wanted: Mapping[str, str], given: Mapping[str, str]) -> tuple[str, str]:
    """Returns the code that sets variables, and the code that brings back what the sandbox was given."""
    if language not in _SETTERS:
        raise InvalidRequest(
            field="env_vars", why=f"variables of {language} are set in the code, not beside it"
        )
    write, drop, quote = _SETTERS[language]
    meanwhile = [write % (name, quote(value)) for name, value in wanted.items()]
    after = [write % (name, quote(given[name])) if name in given else drop % name for name in wanted]
    return "\n".join(meanwhile), "\n".join(after)


async def create_context(asked: AskedPathBody[SandboxPath, envd.NewContext]) -> Response:
    return answer(_shown(await _new(asked, asked.body.language or "python", asked.body.cwd, None)), 201)


async def list_contexts(asked: Asked[SandboxPath]) -> Response:
    sessions = await _sessions(asked)
    begun = {session.language for session in sessions if session.name == _DEFAULT}
    waiting = [
        envd.Context.model_construct(id=_DEFAULT + "-" + language, language=language, cwd=HOME)
        for language in _ALWAYS
        if language not in begun
    ]
    return answer([*waiting, *(_shown(session) for session in sessions)])


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
    language = find_interpreter(language).name
    for session in await _sessions(asked):
        if session.name == _DEFAULT and session.language == language and session.state in _LIVING:
            return session
    return await _new(asked, language, None, _DEFAULT)


async def _new(asked: _ANY, language: str, cwd: str | None, name: str | None) -> Session:
    wanted = WantedSession(
        language=language, sandbox_id=asked.path.sandbox_id, name=name, cwd=cwd or HOME, env={"HOME": HOME}
    )
    try:
        return await asked.platform.sessions.create(wanted, asked.caller)
    except NotAvailable:
        await _demand_running(asked)
        raise


async def _demand_running(asked: _ANY) -> None:
    """Raises NotFound if the sandbox has ended, which is then why something in it did."""
    record = await asked.platform.sandboxes.visible(asked.path.sandbox_id, asked.caller)
    if record.state not in RUNNING:
        raise NotFound(what="sandbox", id=record.id)


async def _sessions(asked: _ANY) -> list[Session]:
    page = await asked.platform.sessions.list(
        asked.caller, sandbox_id=asked.path.sandbox_id, state=None, cursor=None, limit=_MOST
    )
    return [session for session in reversed(page.records) if session.state is not State.ENDED]


async def _found(asked: _ANY, context_id: str) -> Session:
    if context_id.startswith(_DEFAULT + "-"):
        return await _context(asked, context_id.removeprefix(_DEFAULT + "-"), None)
    session = await asked.platform.sessions.get(context_id, asked.caller)
    if session.sandbox_id != asked.path.sandbox_id:
        raise NotFound(what="context", id=context_id)
    return session


async def _lines(asked: _ANY, session: Session, cell: Cell) -> AsyncIterator[StreamEvent]:
    decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in _STREAMS}
    try:
        async for _, part in cell.follow():
            # A large one, such as a picture, is put into words beside the loop.
            line = await asked.lease.work(_size(part), partial(_part, part, decoders, session.language))
            if line.text:
                yield line
    finally:
        if not cell.over.is_set():
            # Its client has left, most often because it took too long: the next one is not to wait for it.
            await asked.platform.sessions.interrupt(session.id, asked.caller)
    if cell.status in _GONE:
        await _demand_running(asked)
    if cell.fault is not None:
        yield _line(_error(cell.fault.name, cell.fault.message, cell.fault.traceback))
    yield _line({"type": "number_of_executions", "execution_count": cell.n})


def _size(part: Part) -> int:
    return len(part.data) if isinstance(part, Text) else sum(map(len, part.mimes.values()))


def _part(part: Part, decoders: Mapping[int, codecs.IncrementalDecoder], language: str) -> Line:
    if isinstance(part, Text):
        text = decoders[part.stream].decode(part.data)
        # E2B's Java says a line and its end one after the other.
        body = text.removesuffix("\n") if language == "java" else text
        return Line(_printed(part.stream, body) + _printed(part.stream, text[len(body) :]))
    return _line({"type": "result", "is_main_result": part.is_main, **_formats(part.mimes)})


def _printed(stream: int, text: str) -> bytes:
    said = {"type": _STREAMS[stream], "text": text, "timestamp": time.time_ns()}
    return _line(said).text if text else b""


def _formats(mimes: Mapping[str, str]) -> dict[str, Any]:
    known: dict[str, Any] = {_FORMATS[kind]: form for kind, form in mimes.items() if kind in _FORMATS}
    for kind, name in _VALUES.items():
        with suppress(KeyError, ValueError, RecursionError, TooLarge):
            known[name] = _json(mimes[kind])
    if extra := {kind: form for kind, form in mimes.items() if kind not in {*_FORMATS, *_VALUES}}:
        known["extra"] = extra
    # A string is said without its quotes.
    if (shown := known.get("text", "")) and shown[0] in "'\"" and shown[0] == shown[-1]:
        known["text"] = shown[1:-1]
    return known


def _json(text: str) -> Any:
    """Returns JSON that a program inside made, which is whatever it likes. Raises ValueError, RecursionError,
    and TooLarge for more structure than a request may have: reading it would stop everybody else.
    """
    Shape.check(text.encode("utf-8", "replace"))
    # What is no number is said as one by Python alone.
    return json.loads(text, parse_constant=lambda _: None)


def _error(name: str, value: str, traceback: str) -> dict[str, str]:
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def _shown(session: Session) -> envd.Context:
    return envd.Context.model_construct(id=session.id, language=session.language, cwd=session.cwd or HOME)


BINDINGS = (
    bind_inside(operations.EXECUTE, execute),
    bind_inside(operations.CREATE_CONTEXT, create_context),
    bind_inside(operations.CONTEXTS, list_contexts),
    bind(operations.END_CONTEXT, end_context),
    bind(operations.RESTART_CONTEXT, restart_context),
)
