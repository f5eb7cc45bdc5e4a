"""Sessions in unsandbox's words: interpreters and shells, each in a sandbox of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.responses import Response

from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, Handler, bind
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.routes import sandboxes
from sandboxer.edges.http.routes.work import processes
from sandboxer.edges.http.routes.work import sessions as ours_of
from sandboxer.edges.unsandbox.translation import (
    ask,
    bytes_in,
    every,
    listed,
    ours,
    read,
    seconds,
    sent,
    told,
    trust_of,
)
from sandboxer.kernel.tasks import to_the_end
from sandboxer.wire.operations import execute as our_operations
from sandboxer.wire.operations.declaration import AnyOperation
from sandboxer.wire.operations.inside import RunCommandQuery
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wire.processes import RunCommand
from sandboxer.wire.sandboxes import Boost
from sandboxer.wire.sessions import RunCell, StartSession
from sandboxer.wire.unsandbox import models, operations
from sandboxer.work.sessions.interpreters import find_interpreter

SHELL = "bash"
# Of a sandbox that was made for a session out of a snapshot, which ends with it.
MARK = {"unsandbox": "session"}
_STATES = {"frozen": "frozen", "died": "terminated", "ended": "terminated"}
_Path = our_operations.SessionPath


async def create(asked: AskedBody[models.NewSession]) -> Response:
    said = asked.body
    body = ours(
        StartSession,
        language=said.language or said.shell or SHELL,
        trust=trust_of(said.network_mode),
        ttl=seconds(said.ttl),
        vcpus=said.vcpu,
        env=said.env,
    )
    made = await ask(ours_of.start, asked, body=body)
    try:
        await put_files(asked, made["sandbox_id"], said.input_files)
    except BaseException:
        await to_the_end(asked.platform.sessions.end(made["id"], asked.caller))
        raise
    return told(session(made))


async def put_files(asked: Any, sandbox_id: str, files: list[models.InputFile]) -> None:
    """Writes what comes with a request where unsandbox does: below /tmp."""
    for file in files:
        path = file.filename if file.filename.startswith("/") else f"/tmp/{file.filename}"
        await asked.platform.work.files.write(sandbox_id, asked.caller, path, _once(bytes_in(file)))


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def list_sessions(asked: Asked) -> Response:
    found = await every(ours_of.list_sessions, asked, our_operations.ListSessionsQuery, "sessions")
    shown = [session(one) for one in found]
    return listed("sessions", [one for one in shown if one.status != "terminated"])


async def end(asked: Asked[_Path]) -> Response:
    found = await asked.platform.sessions.get(asked.path.session_id, asked.caller)
    ended = await ask(ours_of.end, asked)
    if not found.owns_sandbox:
        sandbox = await asked.platform.sandboxes.visible(found.sandbox_id, asked.caller)
        if sandbox.labels.items() >= MARK.items():
            await sandboxes.end(Asked(asked.request, SandboxPath(sandbox_id=sandbox.id), asked.query, None))
    return told({**session(ended).model_dump(mode="json"), "message": "The session has ended."})


async def execute(asked: AskedPathBody[_Path, models.Command]) -> Response:
    """Runs a command: in a session of a shell as its next one, else beside the interpreter."""
    said = asked.body
    found = await asked.platform.sessions.get(asked.path.session_id, asked.caller)
    await put_files(asked, found.sandbox_id, said.input_files)
    if not find_interpreter(found.language).language.is_shell:
        return await run_inside(asked, found.sandbox_id)
    cell = ours(RunCell, code=said.command, timeout_s=said.timeout / 1000)
    done = await ask(ours_of.run_cell, asked, body=cell)
    error = done["error"]
    code = done["exit_code"]
    values = {
        "status": "completed" if done["status"] == "ok" else "failed",
        "stdout": done["stdout"],
        "stderr": done["stderr"],
        "exit_code": code if code is not None else int(done["status"] != "ok"),
        "total_time_ms": done["duration_ms"],
        "execution_time_ms": done["duration_ms"],
        "success": done["status"] == "ok" and not code,
        "error": None if error is None else error["message"],
        "output": done["stdout"] + done["stderr"],
    }
    return told(models.Execution(language=found.language, **values))


async def run_inside(asked: AskedPathBody[Any, models.Command], sandbox_id: str) -> Response:
    """Runs a command of a shell in a sandbox, to its end."""
    body = ours(RunCommand, command=asked.body.command, timeout_s=asked.body.timeout / 1000)
    path = SandboxPath(sandbox_id=sandbox_id)
    query = RunCommandQuery(is_streamed=False)
    done = await ask(processes.run_command, asked, path=path, query=query, body=body)
    values = {
        "status": "timeout" if done["timed_out"] else "completed",
        "stdout": done["stdout"],
        "stderr": done["stderr"],
        "exit_code": done["exit_code"],
        "total_time_ms": done["duration_ms"],
        "execution_time_ms": done["duration_ms"],
        "success": done["exit_code"] == 0,
        "error": done["reason"],
        "output": done["stdout"] + done["stderr"],
    }
    return told(models.Execution(language=SHELL, **values))


async def boost(asked: Asked[_Path]) -> Response:
    """Some clients say how many CPUs it shall have, others leave it out: then two."""
    said = read(models.Resize, await sent(asked))
    return told(session(await ask(ours_of.boost, asked, body=ours(Boost, vcpus=said.vcpu))))


Act = Callable[[Any], Awaitable[Any]]


def _verb(act: Act) -> Handler[Any, Any, Any, Any]:
    async def handle(asked: Asked[_Path]) -> Response:
        return told(session(await ask(act, asked)))

    return handle


def session(seen: dict[str, Any]) -> models.Session:
    """Returns a session of ours in their words."""
    return models.Session(
        id=seen["id"],
        session_id=seen["id"],
        container_name=seen["sandbox_id"],
        status=_STATES.get(seen["state"], "running"),
        shell=seen["language"],
        created_at=seen["created_at"],
        expires_at=seen["expires_at"],
        language=seen["language"],
    )


def _bind(operation: AnyOperation, act: Act) -> Binding:
    return bind(operation, _verb(act))


BINDINGS = (
    bind(operations.NEW_SESSION, create),
    bind(operations.SESSIONS, list_sessions),
    _bind(operations.GET_SESSION, ours_of.get),
    bind(operations.END_SESSION, end),
    bind(operations.SESSION_EXECUTE, execute),
    bind(operations.SESSION_SHELL, execute),
    bind(operations.BOOST_SESSION, boost),
    _bind(operations.FREEZE_SESSION, ours_of.freeze),
    _bind(operations.UNFREEZE_SESSION, ours_of.thaw),
    _bind(operations.UNBOOST_SESSION, ours_of.unboost),
    _bind(operations.LOCK_SESSION, ours_of.lock),
    _bind(operations.UNLOCK_SESSION, ours_of.unlock),
)
