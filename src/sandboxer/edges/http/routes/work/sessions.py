"""Routes of sessions: start, show, run cells, interrupt, restart, end; and what can be done to a session's
sandbox.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.bodies import Texts
from sandboxer.edges.http.demands import confirm_locked, demand_scope, gate_proof
from sandboxer.edges.http.disconnection import until_client_goes
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.operator_audit import note_use
from sandboxer.edges.http.payment import offering
from sandboxer.edges.http.requests import caller, mounts, platform_of, wanted_resources
from sandboxer.edges.http.sse import EVENT_STREAM, EventStream, ServerEvent
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import format_duration
from sandboxer.sandboxes.use_cases.locks import is_guarded
from sandboxer.wire import sessions as wire
from sandboxer.wire.operations import sessions as operations
from sandboxer.wire.operations.declaration import NoParameters, Scope
from sandboxer.wire.operations.paths import CellPath, SessionPath
from sandboxer.wire.operations.sessions import GetCellQuery, ListSessionsQuery
from sandboxer.wire.sandboxes import Boost
from sandboxer.wire.sessions import (
    CellList,
    Interrupted,
    RunCell,
    SessionPage,
    StartSession,
)
from sandboxer.work.sessions import records
from sandboxer.work.sessions.cells import Cell, Text
from sandboxer.work.sessions.lifecycle import State
from sandboxer.work.sessions.use_cases import Sessions, WantedSession

_STREAMS = {1: "stdout", 2: "stderr"}


async def run_cell(asked: Asked[SessionPath, NoParameters, RunCell]) -> Response:
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


async def start(asked: Asked[NoParameters, NoParameters, StartSession]) -> Response:
    platform, who = asked.platform, asked.caller
    wanted = _wanted(asked.body)

    async def act(bind: Bind | None) -> Response:
        if wanted.sandbox_id is not None:
            await note_use(platform, who, "sandbox", wanted.sandbox_id, "sessions")
            return _answer(asked.request, await platform.sessions.create(wanted, who, also=bind), 201)
        having = replace(wanted, volumes=await mounts(asked.request, asked.body.volumes))
        create = await platform.sessions.sandbox_request(having)
        async with (
            platform.admission.of(create, who, gate_proof(asked.request)),
            offering(asked.request, lambda: platform.purchases.price(create, who.account)),
        ):
            return _answer(asked.request, await platform.sessions.create(having, who, also=bind), 201)

    async def recall(session_id: str) -> Response | None:
        made = await platform.sessions.recall(session_id, who)
        return None if made is None else _answer(asked.request, made, 201)

    return await once_bound(asked.request, act, recall=recall)


async def list_sessions(asked: Asked[NoParameters, ListSessionsQuery, None]) -> SessionPage:
    sessions = asked.platform.sessions
    page = await sessions.list(
        asked.caller,
        sandbox_id=asked.query.sandbox_id,
        state=None if asked.query.state is None else State(asked.query.state),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = [shown_session(session, sessions) for session in page.records]
    return SessionPage.model_construct(sessions=shown, next_cursor=page.next_cursor)


async def get(asked: Asked[SessionPath, NoParameters, None]) -> Response:
    return _answer(asked.request, await asked.platform.sessions.get(asked.path.session_id, asked.caller))


async def end(asked: Asked[SessionPath, NoParameters, None]) -> Response:
    platform, who = asked.platform, asked.caller
    session = await platform.sessions.get(asked.path.session_id, who)
    is_confirmed = False
    if session.owns_sandbox and session.state is not State.ENDED:
        # Its sandbox ends with it, with everything on its disk.
        await demand_scope(asked.request, Scope.SANDBOXES_DESTROY)
        is_confirmed = await _confirm(asked.request, session, "destroy")
    return _answer(
        asked.request, await platform.sessions.end(asked.path.session_id, who, despite_lock=is_confirmed)
    )


async def list_cells(asked: Asked[SessionPath, NoParameters, None]) -> CellList:
    cells = await asked.platform.sessions.cells(asked.path.session_id, asked.caller)
    return CellList.model_construct(cells=[shown_end(cell) for cell in cells])


async def get_cell(asked: Asked[CellPath, GetCellQuery, None]) -> Response:
    cell = await asked.platform.sessions.cell(asked.path.session_id, asked.caller, asked.path.n)
    if EVENT_STREAM in asked.request.headers.get("accept", ""):
        return EventStream(cell_events(cell, asked.query.encoding, int(asked.query.last_event_id or 0)))
    if asked.query.wait_s and not cell.over.is_set():
        async with until_client_goes(asked.request.receive):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(asked.query.wait_s):
                    await cell.over.wait()
    return shown_cell(cell, asked.query.encoding)


async def interrupt(asked: Asked[SessionPath, NoParameters, None]) -> Interrupted:
    cell = await asked.platform.sessions.interrupt(asked.path.session_id, asked.caller)
    return Interrupted(cell=None if cell is None else cell.n)


async def restart(asked: Asked[SessionPath, NoParameters, None]) -> Response:
    return _answer(asked.request, await asked.platform.sessions.restart(asked.path.session_id, asked.caller))


async def freeze(asked: Asked[SessionPath, NoParameters, None]) -> Response:
    return await _on_sandbox(asked.request, asked.path.session_id, asked.platform.sandboxes.freeze)


async def thaw(asked: Asked[SessionPath, NoParameters, None]) -> Response:
    return await _on_sandbox(asked.request, asked.path.session_id, asked.platform.sandboxes.thaw)


async def boost(asked: Asked[SessionPath, NoParameters, Boost]) -> Response:
    sandboxes = asked.platform.sandboxes
    return await _on_sandbox(
        asked.request, asked.path.session_id, lambda id, who: sandboxes.boost(id, asked.body.vcpus, who)
    )


async def unboost(asked: Asked[SessionPath, NoParameters, None]) -> Response:
    return await _on_sandbox(asked.request, asked.path.session_id, asked.platform.sandboxes.unboost)


async def lock(asked: Asked[SessionPath, NoParameters, None]) -> Response:
    platform, who = asked.platform, asked.caller
    session = await platform.sessions.get(asked.path.session_id, who)
    await platform.wallets.second_proofs.demand_two(session.account)
    return await _on_sandbox(asked.request, asked.path.session_id, platform.sandboxes.lock)


async def unlock(asked: Asked[SessionPath, NoParameters, None]) -> Response:
    session = await asked.platform.sessions.get(asked.path.session_id, asked.caller)
    await _confirm(asked.request, session, "unlock")
    return await _on_sandbox(asked.request, asked.path.session_id, asked.platform.sandboxes.unlock)


async def _on_sandbox(
    request: Request, session_id: str, act: Callable[[str, Caller], Awaitable[object]]
) -> Response:
    sessions, who = platform_of(request).sessions, caller(request)
    session = await sessions.get(session_id, who)
    await act(session.sandbox_id, who)
    return _answer(request, await sessions.get(session_id, who))


async def _confirm(request: Request, session: records.Session, action: str) -> bool:
    found = await platform_of(request).sandboxes.get(session.sandbox_id, caller(request))
    return is_guarded(found) and await confirm_locked(request, found, action=action)


def _answer(request: Request, session: records.Session, status: int = 200) -> Response:
    answer = json_response(shown_session(session, platform_of(request).sessions), status)
    if status == 201:
        answer.headers["location"] = f"/v1/sessions/{session.id}"
    return answer


def _wanted(body: StartSession) -> WantedSession:
    return WantedSession(
        language=body.language,
        sandbox_id=body.sandbox_id,
        profile=body.profile,
        image=body.image,
        trust=body.trust,
        vcpus=body.vcpus,
        resources=wanted_resources(body.resources),
        name=body.name,
        env=body.env,
        cwd=body.cwd,
        ttl=body.ttl,
        idle=body.idle,
    )


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


def shown_cell(cell: Cell, encoding: str) -> Response:
    texts = Texts()
    shown = wire.Cell.model_construct(
        **_facts(cell),
        code=cell.code,
        stdout=texts.of(cell.text(1), encoding),
        stderr=texts.of(cell.text(2), encoding),
        results=[dict(mimes) for mimes in cell.results()],
        encoding=encoding,
    )
    return texts.answer(shown)


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


BINDINGS: tuple[Binding, ...] = (
    bind(operations.RUN_CELL, run_cell),
    bind(operations.START_SESSION, start),
    bind(operations.LIST_SESSIONS, list_sessions),
    bind(operations.GET_SESSION, get),
    bind(operations.END_SESSION, end),
    bind(operations.LIST_CELLS, list_cells),
    bind(operations.GET_CELL, get_cell),
    bind(operations.INTERRUPT_SESSION, interrupt),
    bind(operations.RESTART_SESSION, restart),
    bind(operations.FREEZE_SESSION, freeze),
    bind(operations.THAW_SESSION, thaw),
    bind(operations.BOOST_SESSION, boost),
    bind(operations.UNBOOST_SESSION, unboost),
    bind(operations.LOCK_SESSION, lock),
    bind(operations.UNLOCK_SESSION, unlock),
)
