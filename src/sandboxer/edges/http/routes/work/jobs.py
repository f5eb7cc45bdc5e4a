"""Jobs: look, list, wait, cancel. They are made by `POST /v1/execute/async`."""

from __future__ import annotations

from starlette.requests import Request

from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.disconnect import until_client_goes
from sandboxer.edges.http.executions import job, job_summary
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.offers import version_in
from sandboxer.edges.http.state import platform_of
from sandboxer.wire.jobs import Job, JobPage
from sandboxer.wire.operations import jobs as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.jobs import CancelJobQuery, GetJobQuery, ListJobsQuery
from sandboxer.wire.operations.paths import JobPath
from sandboxer.work.jobs.desk import Seen
from sandboxer.work.jobs.lifecycle import State


async def list_jobs(asked: Asked[NoParameters, ListJobsQuery, None]) -> JobPage:
    page = await asked.platform.execution.jobs.list(
        asked.caller,
        state=None if asked.query.state is None else State(asked.query.state),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = [job_summary(found) for found in page.jobs]
    return JobPage.model_construct(jobs=shown, next_cursor=page.next_cursor)


async def get_job(asked: Asked[JobPath, GetJobQuery, None]) -> Job:
    jobs, who = asked.platform.execution.jobs, asked.caller
    if asked.query.wait_s > 0:
        async with until_client_goes(asked.request.receive):
            seen = await jobs.wait(asked.path.job_id, who, timeout_s=asked.query.wait_s)
    else:
        seen = await jobs.get(asked.path.job_id, who)
    return job(seen, asked.query.encoding, await _version(asked.request, seen))


async def cancel_job(asked: Asked[JobPath, CancelJobQuery, None]) -> Job:
    seen = await asked.platform.execution.jobs.cancel(asked.path.job_id, asked.caller)
    return job(seen, asked.query.encoding, await _version(asked.request, seen))


async def _version(request: Request, seen: Seen) -> str | None:
    """Of the language, in the image that its sandbox was made from."""
    if seen.outcome is None or seen.job.sandbox_id is None:
        return None
    sandbox = await platform_of(request).sandboxes.room.book.find(seen.job.sandbox_id)
    return None if sandbox is None else await version_in(request, seen.job.language, sandbox.image)


BINDINGS: tuple[Binding, ...] = (
    bind(operations.LIST_JOBS, list_jobs),
    bind(operations.GET_JOB, get_job),
    bind(operations.CANCEL_JOB, cancel_job),
)
