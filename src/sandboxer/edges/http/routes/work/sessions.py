"""Routes of sessions: start, show, run cells, interrupt, restart, end; and what can be done to a session's
sandbox.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, AskedQuery, Handler, bind
from sandboxer.edges.http.bodies import EVENT_STREAM, EventStream, ServerEvent, Texts
from sandboxer.edges.http.demands import confirm_locked_sandbox, demand_scope, gate_proof, offering
from sandboxer.edges.http.disconnection import until_client_goes
from sandboxer.edges.http.idempotency import Bind, make_once
from sandboxer.edges.http.operator_audit import note_use
from sandboxer.edges.http.requests import caller, from_body, mounts, platform_of, wanted_resources
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import format_duration
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.use_cases import boosts, locks, pause
from sandboxer.wire import sessions as wire
from sandboxer.wire.operations import execute as operations
from sandboxer.wire.operations.declaration import Scope
from sandboxer.wire.sandboxes import Boost
from sandboxer.work.sessions import records
from sandboxer.work.sessions.cells import Cell, Text
from sandboxer.work.sessions.records import State
from sandboxer.work.sessions.use_cases import Sessions, WantedSession

_STREAMS = {1: "stdout", 2: "stderr"}
SandboxVerb = Callable[[SandboxDependencies, str, Caller], Awaitable[object]]


async def run_cell(asked: AskedPathBody[operations.SessionPath, wire.RunCell]) -> Response:
    sessions = asked.platform.sessions
    cell = await sessions.submit(
        asked.path.session_id, asked.caller, asked.body.code, timeout_s=asked.body.timeout_s
    )
    if EVENT_STREAM in asked.request.headers.get("accept", ""):
        return EventStream(cell_events(cell, asked.body.encoding, 0))
    if asked.body.wait:
        async with until_client_goes(asked.request.receive):
            await cell.over.wait()
    return shown_cell(cell, asked.body.encoding)


async def start(asked: AskedBody[wire.StartSession]) -> Response:
    platform, who = asked.platform, asked.caller
    wanted = _wanted(asked.body)

    async def make(bind: Bind | None) -> records.Session:
        if wanted.sandbox_id is not None:
            await note_use(platform, who, "sandbox", wanted.sandbox_id, "sessions")
            return await platform.sessions.create(wanted, who, also=bind)
        having = replace(wanted, volumes=await mounts(asked.request, asked.body.volumes))
        create = await platform.sessions.sandbox_request(having)
        async with (
            platform.admission.of(create, who, gate_proof(asked.request)),
            offering(asked.request, lambda: platform.purchases.price(create, who.account)),
        ):
            return await platform.sessions.create(having, who, also=bind)

    return await make_once(asked.request, make, platform.sessions.recall, partial(_made, asked.request))


async def list_sessions(asked: AskedQuery[operations.ListSessionsQuery]) -> wire.SessionPage:
    sessions = asked.platform.sessions
    page = await sessions.list(
        asked.caller,
        sandbox_id=asked.query.sandbox_id,
        state=None if asked.query.state is None else State(asked.query.state),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = [shown_session(session, sessions) for session in page.records]
    return wire.SessionPage.model_construct(sessions=shown, next_cursor=page.next_cursor)


def _verb(
    act: Callable[[Sessions, str, Caller], Awaitable[records.Session]],
) -> Handler[operations.SessionPath]:
    """Returns the handler of a verb that needs the session and its caller, and answers with the session."""

    async def handle(asked: Asked[operations.SessionPath]) -> Response:
        sessions = asked.platform.sessions
        return _answer(asked.request, await act(sessions, asked.path.session_id, asked.caller))

    return handle


def _sandbox_verb(act: SandboxVerb) -> Handler[operations.SessionPath]:
    """Returns the handler of a verb that is about the session's sandbox."""

    async def handle(asked: Asked[operations.SessionPath]) -> Response:
        return await _on_sandbox(asked.request, asked.path.session_id, act)

    return handle


async def end(asked: Asked[operations.SessionPath]) -> Response:
    platform, who = asked.platform, asked.caller
    session = await platform.sessions.get(asked.path.session_id, who)
    is_confirmed = False
    if session.owns_sandbox and session.state is not State.ENDED:
        # Its sandbox ends with it, with everything on its disk.
        await demand_scope(asked.request, Scope.SANDBOXES_DESTROY)
        is_confirmed = await confirm_locked_sandbox(asked.request, session.sandbox_id, action="destroy")
    return _answer(
        asked.request, await platform.sessions.end(asked.path.session_id, who, despite_lock=is_confirmed)
    )


async def list_cells(asked: Asked[operations.SessionPath]) -> Response:
    cells, texts = await asked.platform.sessions.cells(asked.path.session_id, asked.caller), Texts()
    return texts.answer(wire.CellList.model_construct(cells=[shown_end(cell, texts) for cell in cells]))


async def get_cell(asked: Asked[operations.CellPath, operations.GetCellQuery]) -> Response:
    cell = await asked.platform.sessions.cell(asked.path.session_id, asked.caller, asked.path.n)
    if EVENT_STREAM in asked.request.headers.get("accept", ""):
        return EventStream(cell_events(cell, asked.query.encoding, int(asked.query.last_event_id or 0)))
    if asked.query.wait_s and not cell.over.is_set():
        async with until_client_goes(asked.request.receive):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(asked.query.wait_s):
                    await cell.over.wait()
    return shown_cell(cell, asked.query.encoding)


async def interrupt(asked: Asked[operations.SessionPath]) -> wire.Interrupted:
    cell = await asked.platform.sessions.interrupt(asked.path.session_id, asked.caller)
    return wire.Interrupted(cell=None if cell is None else cell.n)


async def boost(asked: AskedPathBody[operations.SessionPath, Boost]) -> Response:
    act = partial(boosts.boost, vcpus=asked.body.vcpus)
    return await _on_sandbox(asked.request, asked.path.session_id, act)


async def lock(asked: Asked[operations.SessionPath]) -> Response:
    platform, who = asked.platform, asked.caller
    session = await platform.sessions.get(asked.path.session_id, who)
    await platform.wallets.second_proofs.demand_two(session.account)
    return await _on_sandbox(asked.request, asked.path.session_id, locks.lock)


async def unlock(asked: Asked[operations.SessionPath]) -> Response:
    session = await asked.platform.sessions.get(asked.path.session_id, asked.caller)
    await confirm_locked_sandbox(asked.request, session.sandbox_id, action="unlock")
    return await _on_sandbox(asked.request, asked.path.session_id, locks.unlock)


async def _on_sandbox(request: Request, session_id: str, act: SandboxVerb) -> Response:
    platform, who = platform_of(request), caller(request)
    sessions = platform.sessions
    session = await sessions.get(session_id, who)
    await act(platform.sandboxes, session.sandbox_id, who)
    return _answer(request, await sessions.get(session_id, who))


def _answer(request: Request, session: records.Session) -> Response:
    return json_response(shown_session(session, platform_of(request).sessions))


def _made(request: Request, session: records.Session) -> Response:
    shown = shown_session(session, platform_of(request).sessions)
    return json_response(shown, 201, location=f"/v1/sessions/{session.id}")


def _wanted(body: wire.StartSession) -> WantedSession:
    return from_body(WantedSession, body, resources=wanted_resources(body.resources), volumes=())


def shown_session(session: records.Session, sessions: Sessions) -> wire.Session:
    return from_record(
        wire.Session,
        session,
        state=_state(session, sessions),
        cells=sessions.cell_count(session),
        idle=format_duration(session.idle),
    )


def shown_cell(cell: Cell, encoding: str) -> Response:
    texts = Texts()
    shown = from_record(
        wire.Cell,
        shown_end(cell, texts),
        code=texts.text(cell.code),
        stdout=texts.of(cell.text(1), encoding),
        stderr=texts.of(cell.text(2), encoding),
        results=[_result(mimes, texts) for mimes in cell.results()],
        encoding=encoding,
    )
    return texts.answer(shown)


def shown_end(cell: Cell, texts: Texts) -> wire.CellEnd:
    error, fault = None, cell.fault
    if fault is not None:
        message, traceback = texts.text(fault.message), texts.text(fault.traceback)
        error = from_record(wire.CellError, fault, message=message, traceback=traceback)
    return from_record(wire.CellEnd, cell, error=error)


def _result(mimes: Mapping[str, str], texts: Texts) -> dict[str, str]:
    return {name: texts.text(value) for name, value in mimes.items()}


async def cell_events(cell: Cell, encoding: str, after: int) -> AsyncIterator[ServerEvent]:
    """`cell`, then each piece with its number as event id, then `done`. A reader who comes back names the
    last number it saw; a character that was cut in two by then shows as U+FFFD."""
    yield _end_event("cell", cell)
    decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in _STREAMS}
    async for number, part in cell.follow(after):
        if not isinstance(part, Text):
            texts = Texts()
            result = wire.CellResult.model_construct(data=_result(part.mimes, texts))
            yield ServerEvent("result", result, str(number), texts)
            continue
        is_text = encoding == "utf-8"
        data = decoders[part.stream].decode(part.data) if is_text else base64.b64encode(part.data).decode()
        if data:
            shown = wire.CellOutput.model_construct(data=data)
            yield ServerEvent(_STREAMS[part.stream], shown, str(number))
    for stream, name in _STREAMS.items():
        if rest := decoders[stream].decode(b"", final=True):
            yield ServerEvent(name, wire.CellOutput.model_construct(data=rest))
    yield _end_event("done", cell)


def _end_event(name: str, cell: Cell) -> ServerEvent:
    texts = Texts()
    return ServerEvent(name, shown_end(cell, texts), texts=texts)


def _state(session: records.Session, sessions: Sessions) -> str:
    if session.state is not State.READY:
        return session.state.value
    if sessions.is_frozen(session):
        return "frozen"
    return "busy" if sessions.is_busy(session) else "ready"


get = _verb(Sessions.get)
freeze, thaw = _sandbox_verb(pause.freeze), _sandbox_verb(pause.thaw)
unboost = _sandbox_verb(boosts.unboost)
BINDINGS = (
    bind(operations.RUN_CELL, run_cell),
    bind(operations.START_SESSION, start),
    bind(operations.LIST_SESSIONS, list_sessions),
    bind(operations.GET_SESSION, get),
    bind(operations.END_SESSION, end),
    bind(operations.LIST_CELLS, list_cells),
    bind(operations.GET_CELL, get_cell),
    bind(operations.INTERRUPT_SESSION, interrupt),
    bind(operations.RESTART_SESSION, _verb(Sessions.restart)),
    bind(operations.FREEZE_SESSION, freeze),
    bind(operations.THAW_SESSION, thaw),
    bind(operations.BOOST_SESSION, boost),
    bind(operations.UNBOOST_SESSION, unboost),
    bind(operations.LOCK_SESSION, lock),
    bind(operations.UNLOCK_SESSION, unlock),
)
