"""Code that runs once, jobs, languages and shells, in unsandbox's words."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from sandboxer.edges.http.binding import Asked, AskedBody, bind
from sandboxer.edges.http.routes import catalogue
from sandboxer.edges.http.routes.work import execute as code
from sandboxer.edges.unsandbox.translation import ask, bytes_in, every, mode_of, ours, sent, told, trust_of
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.wire.execute import ExecuteCode, ExecuteLater
from sandboxer.wire.operations import execute as our_operations
from sandboxer.wire.operations.platform import ListLanguagesQuery
from sandboxer.wire.unsandbox import models, operations

_STATES = {
    "queued": "pending",
    "running": "running",
    "finished": "completed",
    "cancelled": "cancelled",
    "timed_out": "timeout",
}
_OVER = frozenset({"completed", "failed", "timeout", "cancelled"})
# What a run made or changed, whatever its name.
_MADE = ["**/*"]


async def execute(asked: AskedBody[models.Execute]) -> Response:
    return await _run(asked, asked.body)


async def run(asked: Asked) -> Response:
    return await _run(asked, await _plain_code(asked))


async def execute_async(asked: AskedBody[models.Execute]) -> Response:
    return await _queue(asked, asked.body)


async def run_async(asked: Asked) -> Response:
    return await _queue(asked, await _plain_code(asked))


async def _plain_code(asked: Asked) -> models.Execute:
    """Returns code that was sent as the body itself. What it shall run as is said by its first line."""
    try:
        text = (await sent(asked)).decode()
    except UnicodeDecodeError:
        raise InvalidRequest(field="body", why="it is not text in UTF-8") from None
    query = asked.request.query_params
    wanted = {name: query[name] for name in ("language", "network_mode", "ttl", "vcpu") if name in query}
    return ours(models.Execute, code=text, **wanted)


async def _run(asked: Any, body: models.Execute) -> Response:
    done = await ask(code.execute, asked, body=_wanted(ExecuteCode, body))
    return told(_execution(done, status="completed", network_mode=mode_of(trust_of(body.network_mode))))


async def _queue(asked: Any, body: models.Execute) -> Response:
    job = await ask(code.execute_later, asked, body=_wanted(ExecuteLater, body))
    status = _STATES.get(job["state"], "pending")
    queued = {
        "job_id": job["id"],
        "status": status,
        "language": job["language"],
        "message": "The job is queued.",
    }
    return told(queued, 202)


def _wanted(model: type[ExecuteCode], body: models.Execute) -> ExecuteCode:
    if body.return_wasm_artifact:
        raise InvalidRequest(
            field="return_wasm_artifact", why="this platform does not compile to WebAssembly"
        )
    return ours(
        model,
        code=body.code,
        language=body.language,
        trust=trust_of(body.network_mode),
        ttl_s=body.ttl,
        env=body.env,
        vcpus=body.vcpu,
        argv=body.argv,
        stdin=body.stdin,
        files=[_file(file) for file in body.input_files],
        artifacts=_MADE if body.return_artifact else [],
    )


def _file(file: models.InputFile) -> dict[str, str]:
    bytes_in(file)
    return {"name": file.filename.removeprefix("/tmp/"), "content": file.content, "encoding": "base64"}


async def list_jobs(asked: Asked) -> Response:
    found = await every(code.list_jobs, asked, our_operations.ListJobsQuery, "jobs")
    jobs = [_summary(job) for job in found]
    return told({"jobs": jobs, "count": len(jobs)})


async def get_job(asked: Asked[our_operations.JobPath]) -> Response:
    return told(_job(await ask(code.get_job, asked, query=our_operations.GetJobQuery())))


async def cancel_job(asked: Asked[our_operations.JobPath]) -> Response:
    return told(_job(await ask(code.cancel_job, asked, query=our_operations.CancelJobQuery())))


def _summary(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": job["id"],
        "job_id": job["id"],
        "status": _STATES.get(job["state"], "failed"),
        "language": job["language"],
        "created_at": job["created_at"],
    }


def _job(job: dict[str, Any]) -> models.Execution:
    summary = _summary(job)
    result = job["result"] or {"language": job["language"]}
    problem = job["problem"]
    error = None if problem is None else problem["detail"]
    return _execution({**result, "reason": result.get("reason") or error}, **summary)


def _execution(done: dict[str, Any], *, status: str, **more: Any) -> models.Execution:
    """Returns how it went; what its compiler said is part of it."""
    compiled = done.get("compile") or {}
    is_over = status in _OVER
    artifacts = [
        {"type": "base64", "filename": one["name"], "data": one["content"], "content_base64": one["content"]}
        for one in sorted(done.get("artifacts", ()), key=lambda one: -int(one["size"]))
    ]
    reason = done.get("reason")
    values: dict[str, Any] = {
        "status": status,
        "stdout": compiled.get("stdout", "") + done.get("stdout", ""),
        "stderr": compiled.get("stderr", "") + done.get("stderr", ""),
        "exit_code": done.get("exit_code"),
        "total_time_ms": done.get("total_ms") or done.get("duration_ms"),
        "execution_time_ms": done.get("duration_ms"),
        "success": is_over and done.get("exit_code") == 0 and reason is None,
        "error": reason if is_over else None,
        "artifact": artifacts[0] if artifacts else None,
        "artifacts": artifacts or None,
        "language": done["language"],
    }
    return models.Execution(**{**values, **more})


async def languages(asked: Asked) -> Response:
    """Answers with those that run here; theirs names no others."""
    found = await ask(catalogue.list_languages, asked, query=ListLanguagesQuery(available=True))
    names = [one["name"] for one in found["languages"]]
    known = {alias: name for alias, name in found["aliases"].items() if name in names}
    return told({"languages": names, "aliases": known, "count": len(names)})


async def shells(asked: Asked) -> Response:
    found = await ask(catalogue.list_shells, asked, query=ListLanguagesQuery(available=True))
    names = [one["name"] for one in found["shells"]]
    return told({"shells": names, "count": len(names)})


BINDINGS = (
    bind(operations.EXECUTE, execute),
    bind(operations.EXECUTE_ASYNC, execute_async),
    bind(operations.RUN, run),
    bind(operations.RUN_ASYNC, run_async),
    bind(operations.JOBS, list_jobs),
    bind(operations.GET_JOB, get_job),
    bind(operations.CANCEL_JOB, cancel_job),
    bind(operations.CANCEL_JOB_TOO, cancel_job),
    bind(operations.LANGUAGES, languages),
    bind(operations.SHELLS, shells),
)
