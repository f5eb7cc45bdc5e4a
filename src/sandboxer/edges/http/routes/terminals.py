"""Routes of terminals over WebSocket: bytes in binary frames, control messages in text frames. Viewers may
leave and return.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated

from fastapi import Query, WebSocket
from pydantic import ValidationError
from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect, WebSocketState

from sandboxer.backends.guest import Exit, Process, TerminalSize
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import nothing
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.requests import caller, platform_of
from sandboxer.kernel.errors import BackendLost, InvalidRequest, SandboxerError
from sandboxer.wire.operations import processes as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import SandboxPath, TerminalPath
from sandboxer.wire.operations.processes import OpenTerminalQuery
from sandboxer.wire.processes import Resize, TerminalExit, TerminalList, TerminalProblem, TerminalReady
from sandboxer.wire.words import Problem, SandboxId
from sandboxer.work.lines import Wanted

# Interactive, so that it reads ~/.bashrc and shows a prompt.
SHELL = ("/bin/sh", "-c", "if [ -x /bin/bash ]; then exec /bin/bash -i; else exec /bin/sh -i; fi")
CLOSE_DONE, CLOSE_BAD_WORD, CLOSE_BROKEN = 1000, 1003, 1011


async def open_terminal(
    websocket: WebSocket, sandbox_id: SandboxId, query: Annotated[OpenTerminalQuery, Query()]
) -> None:
    size = TerminalSize(cols=query.cols, rows=query.rows)
    terminals = platform_of(websocket).work.terminals
    who = caller(websocket)
    opened: AbstractAsyncContextManager[Process]
    if query.terminal_id is not None:
        opened = terminals.attach(sandbox_id, who, query.terminal_id, size)
    else:
        argv = SHELL if query.command is None else None
        wanted = Wanted(shell=query.command, argv=argv, cwd=query.cwd, user=query.user)
        opened = terminals.open(sandbox_id, who, wanted, size)
    async with _reporting_problems(websocket), opened as process:
        await websocket.accept()
        ready = TerminalReady(terminal_id=process.process_id, reattached=query.terminal_id is not None)
        await websocket.send_text(ready.model_dump_json())
        await _serve(websocket, process)


async def needs_upgrade(asked: Asked[SandboxPath, OpenTerminalQuery, None]) -> Response:
    headers = {"upgrade": "websocket", "connection": "upgrade"}
    request_id = problems.request_id_of(asked.request.scope)
    return problems.framework_response(426, "A terminal needs a WebSocket.", request_id, headers)


async def list_terminals(asked: Asked[SandboxPath, NoParameters, None]) -> TerminalList:
    infos = await asked.platform.work.terminals.list(asked.path.sandbox_id, asked.caller)
    return TerminalList.model_construct(terminals=[answers.terminal(info) for info in infos])


async def end_terminal(asked: Asked[TerminalPath, NoParameters, None]) -> Response:
    await asked.platform.work.terminals.end(asked.path.sandbox_id, asked.caller, asked.path.terminal_id)
    return nothing()


async def _serve(websocket: WebSocket, process: Process) -> None:
    """Serves both directions until the program ends or the viewer leaves; the program outlives the viewer."""
    async with asyncio.TaskGroup() as group:
        typing = group.create_task(_type(websocket, process))
        showing = group.create_task(_show(websocket, process))
        await asyncio.wait({typing, showing}, return_when=asyncio.FIRST_COMPLETED)
        typing.cancel()
        showing.cancel()


async def _show(websocket: WebSocket, process: Process) -> None:
    async for item in process.output():
        if isinstance(item, Exit):
            reason = None if item.reason is None else item.reason.value
            await websocket.send_text(TerminalExit(exit_code=item.code, reason=reason).model_dump_json())
            await websocket.close(CLOSE_DONE)
            return
        await websocket.send_bytes(item.data)
    raise BackendLost(why="the terminal's output ended without its exit")


async def _type(websocket: WebSocket, process: Process) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        data = message.get("bytes")
        if data:
            await process.write_stdin(data)
        elif message.get("text"):
            await _obey(message["text"], process)


async def _obey(text: str, process: Process) -> None:
    try:
        word = Resize.model_validate_json(text)
    except ValidationError as error:
        raise problems.invalid([dict(found) for found in error.errors(include_url=False)]) from None
    await process.resize(TerminalSize(cols=word.cols, rows=word.rows))


@asynccontextmanager
async def _reporting_problems(websocket: WebSocket) -> AsyncIterator[None]:
    """Reports errors as problems: as an HTTP answer before the upgrade, as a message after it."""
    try:
        yield
    except* WebSocketDisconnect:
        pass
    except* SandboxerError as group:
        await _tell(websocket, _first(group))


async def _tell(websocket: WebSocket, error: SandboxerError) -> None:
    request_id = problems.request_id_of(websocket.scope)
    if websocket.client_state is WebSocketState.CONNECTING:
        await websocket.send_denial_response(problems.response(error, request_id))
        return
    if websocket.application_state is not WebSocketState.CONNECTED:
        return
    shown = TerminalProblem(problem=Problem.model_validate(problems.document(error, request_id)))
    try:
        await websocket.send_text(shown.model_dump_json())
        await websocket.close(CLOSE_BAD_WORD if isinstance(error, InvalidRequest) else CLOSE_BROKEN)
    except (WebSocketDisconnect, RuntimeError):
        # The viewer left meanwhile.
        return


def _first(group: BaseExceptionGroup[SandboxerError]) -> SandboxerError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


BINDINGS: tuple[Binding, ...] = (
    bind(operations.OPEN_TERMINAL, needs_upgrade, websocket=open_terminal),
    bind(operations.LIST_TERMINALS, list_terminals),
    bind(operations.END_TERMINAL, end_terminal),
)
