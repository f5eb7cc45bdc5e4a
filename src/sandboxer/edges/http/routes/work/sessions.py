"""Sessions: start, look, run cells, interrupt, restart, end; and what can be done to the sandbox of one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts.scopes import Scope
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.confirming import confirm_locked, pass_gate
from sandboxer.edges.http.disconnect import until_client_goes
from sandboxer.edges.http.failures import failures, inside, stream
from sandboxer.edges.http.idempotency import Bind, IdempotencyKey, once_bound
from sandboxer.edges.http.key_scopes import demand_scope
from sandboxer.edges.http.lean import LeanRoute
from sandboxer.edges.http.mounting import mounts
from sandboxer.edges.http.paying import offering, price_of_create
from sandboxer.edges.http.sessions import cell_events, shown_cell, shown_end, shown_session
from sandboxer.edges.http.sse import EVENT_STREAM, EventStream
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.edges.http.visiting import note_use
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.locks import is_guarded
from sandboxer.sandboxes.requests import WantedResources
from sandboxer.wire.boosts import Boost
from sandboxer.wire.sessions import (
    CELL_TIMEOUT_MAX_S,
    Cell,
    CellList,
    CellNumber,
    Interrupted,
    RunCell,
    Session,
    SessionId,
    SessionPage,
    StartSession,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor, Encoding, SandboxId
from sandboxer.work.sessions import records
from sandboxer.work.sessions.lifecycle import State
from sandboxer.work.sessions.sessions import WantedSession

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=LeanRoute)
_STREAMED = stream("The cell; or, streamed: `cell`, `stdout`, `stderr` and `result`, then `done`.")


@router.post(
    "/{session_id}/cells",
    operation_id="runCell",
    response_model=Cell,
    responses={**inside(), 200: _STREAMED},
    summary="Run code in it; what runs goes on when you leave",
)
async def run_cell(request: Request, session_id: SessionId, body: RunCell) -> Response:
    sessions = platform_of(request).sessions
    cell = await sessions.submit(session_id, caller(request), body.code, timeout_s=body.timeout_s)
    if EVENT_STREAM in request.headers.get("accept", ""):
        return EventStream(cell_events(cell, body.encoding, 0))
    if body.wait:
        async with until_client_goes(request.receive):
            await cell.over.wait()
    return json_response(shown_cell(cell, body.encoding))


@router.post(
    "",
    operation_id="startSession",
    status_code=201,
    response_model=Session,
    responses=failures(402, 404, 409, 502),
    summary="Start an interpreter that keeps its state",
)
async def start(request: Request, body: StartSession, idempotency_key: IdempotencyKey = None) -> Response:
    platform, who = platform_of(request), caller(request)
    wanted = _wanted(body)

    async def act(bind: Bind | None) -> Response:
        if wanted.sandbox_id is not None:
            await note_use(platform, who, "sandboxes", wanted.sandbox_id, "sessions")
            return _answer(request, await platform.sessions.create(wanted, who, also=bind), 201)
        having = replace(wanted, volumes=await mounts(request, body.volumes))
        create = await platform.sessions.sandbox_request(having)
        await demand_scope(request, Scope.SANDBOXES_CREATE)
        await pass_gate(request, create.profile)
        async with (
            offering(request, lambda: price_of_create(platform, create, who.account)),
            platform.slots.taken(await platform.authorities.of(who)),
        ):
            return _answer(request, await platform.sessions.create(having, who, also=bind), 201)

    async def recall(session_id: str) -> Response | None:
        made = await platform.sessions.recall(session_id, who)
        return None if made is None else _answer(request, made, 201)

    return await once_bound(request, act, recall=recall)


@router.get(
    "",
    operation_id="listSessions",
    response_model=SessionPage,
    responses=failures(),
    summary="List sessions, newest first",
)
async def list_sessions(
    request: Request,
    sandbox_id: Annotated[SandboxId | None, Query()] = None,
    state: Annotated[
        State | None,
        Query(description="As recorded: busy and frozen ones are `ready`. Default: all but ended."),
    ] = None,
    cursor: Annotated[Cursor | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT,
) -> Response:
    sessions = platform_of(request).sessions
    page = await sessions.list(
        caller(request), sandbox_id=sandbox_id, state=state, cursor=cursor, limit=limit
    )
    shown = [shown_session(session, sessions) for session in page.sessions]
    return json_response(SessionPage.model_construct(sessions=shown, next_cursor=page.next_cursor))


@router.get(
    "/{session_id}",
    operation_id="getSession",
    response_model=Session,
    responses=failures(404),
    summary="Look at a session",
)
async def get(request: Request, session_id: SessionId) -> Response:
    return _answer(request, await platform_of(request).sessions.get(session_id, caller(request)))


@router.delete(
    "/{session_id}",
    operation_id="endSession",
    response_model=Session,
    responses=inside(428),
    summary="End it, and its sandbox if that was made for it; ended already is success",
)
async def end(request: Request, session_id: SessionId) -> Response:
    platform, who = platform_of(request), caller(request)
    session = await platform.sessions.get(session_id, who)
    is_confirmed = False
    if session.owns_sandbox and session.state is not State.ENDED:
        # Its sandbox ends with it, and all that is on its disk.
        await demand_scope(request, Scope.SANDBOXES_DESTROY)
        is_confirmed = await _confirm(request, session, "destroy")
    return _answer(request, await platform.sessions.end(session_id, who, despite_lock=is_confirmed))


@router.get(
    "/{session_id}/cells",
    operation_id="listCells",
    response_model=CellList,
    responses=failures(404),
    summary="List its cells that are still kept, oldest first",
)
async def list_cells(request: Request, session_id: SessionId) -> Response:
    cells = await platform_of(request).sessions.cells(session_id, caller(request))
    return json_response(CellList.model_construct(cells=[shown_end(cell) for cell in cells]))


@router.get(
    "/{session_id}/cells/{n}",
    operation_id="getCell",
    response_model=Cell,
    responses={**failures(404), 200: _STREAMED},
    summary="Look at a cell, wait for it, or follow it while it runs",
)
async def get_cell(
    request: Request,
    session_id: SessionId,
    n: CellNumber,
    wait_s: Annotated[
        float,
        Query(ge=0, le=CELL_TIMEOUT_MAX_S, allow_inf_nan=False, description="Wait so long for its end."),
    ] = 0.0,
    encoding: Annotated[Encoding, Query()] = "utf-8",
    last_event_id: Annotated[
        str | None,
        Header(pattern=r"^[0-9]{1,9}$", description="Streamed: go on after this event."),
    ] = None,
) -> Response:
    cell = await platform_of(request).sessions.cell(session_id, caller(request), n)
    if EVENT_STREAM in request.headers.get("accept", ""):
        return EventStream(cell_events(cell, encoding, int(last_event_id or 0)))
    if wait_s and not cell.over.is_set():
        async with until_client_goes(request.receive):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await cell.over.wait()
    return json_response(shown_cell(cell, encoding))


@router.post(
    "/{session_id}/interrupt",
    operation_id="interruptSession",
    response_model=Interrupted,
    responses=inside(),
    summary="Stop the running cell as Ctrl-C would; the state stays",
)
async def interrupt(request: Request, session_id: SessionId) -> Response:
    cell = await platform_of(request).sessions.interrupt(session_id, caller(request))
    return json_response(Interrupted(cell=None if cell is None else cell.n))


@router.post(
    "/{session_id}/restart",
    operation_id="restartSession",
    response_model=Session,
    responses=inside(),
    summary="Start a fresh interpreter; what the old one knew is gone, files are not",
)
async def restart(request: Request, session_id: SessionId) -> Response:
    return _answer(request, await platform_of(request).sessions.restart(session_id, caller(request)))


@router.post(
    "/{session_id}/freeze",
    operation_id="freezeSession",
    response_model=Session,
    responses=inside(),
    summary="Pause its sandbox in memory",
)
async def freeze(request: Request, session_id: SessionId) -> Response:
    return await _on_sandbox(request, session_id, platform_of(request).sandboxes.freeze)


@router.post(
    "/{session_id}/thaw",
    operation_id="thawSession",
    response_model=Session,
    responses=inside(402),
    summary="Let its frozen sandbox go on",
)
async def thaw(request: Request, session_id: SessionId) -> Response:
    return await _on_sandbox(request, session_id, platform_of(request).sandboxes.thaw)


@router.post(
    "/{session_id}/boost",
    operation_id="boostSession",
    response_model=Session,
    responses=inside(402),
    summary="More CPUs, and 2 GB of memory with each, at once",
)
async def boost(request: Request, session_id: SessionId, body: Boost) -> Response:
    sandboxes = platform_of(request).sandboxes
    return await _on_sandbox(request, session_id, lambda id, who: sandboxes.boost(id, body.vcpus, who))


@router.post(
    "/{session_id}/unboost",
    operation_id="unboostSession",
    response_model=Session,
    responses=inside(),
    summary="Back to what it had; not boosted is success",
)
async def unboost(request: Request, session_id: SessionId) -> Response:
    return await _on_sandbox(request, session_id, platform_of(request).sandboxes.unboost)


@router.post(
    "/{session_id}/lock",
    operation_id="lockSession",
    response_model=Session,
    responses=failures(404, 409),
    summary="From now on ending its sandbox needs a second proof",
)
async def lock(request: Request, session_id: SessionId) -> Response:
    platform, who = platform_of(request), caller(request)
    session = await platform.sessions.get(session_id, who)
    await platform.wallets.second_proofs.demand_two(session.account)
    return await _on_sandbox(request, session_id, platform.sandboxes.lock)


@router.post(
    "/{session_id}/unlock",
    operation_id="unlockSession",
    response_model=Session,
    responses=failures(404, 409, 428),
    summary="Let it be ended by a request alone again",
)
async def unlock(request: Request, session_id: SessionId) -> Response:
    session = await platform_of(request).sessions.get(session_id, caller(request))
    await _confirm(request, session, "unlock")
    return await _on_sandbox(request, session_id, platform_of(request).sandboxes.unlock)


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
    wanted = body.resources
    return WantedSession(
        language=body.language,
        sandbox_id=body.sandbox_id,
        profile=body.profile,
        image=body.image,
        trust=body.trust,
        vcpus=body.vcpus,
        resources=WantedResources() if wanted is None else WantedResources(**wanted.model_dump()),
        name=body.name,
        env=body.env,
        cwd=body.cwd,
        ttl=body.ttl,
        idle=body.idle,
    )
