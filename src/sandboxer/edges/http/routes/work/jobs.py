"""Jobs: look, list, wait, cancel. They are made by `POST /v1/execute/async`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.disconnect import until_client_goes
from sandboxer.edges.http.executions import job, job_summary
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.offers import version_in
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.wire.jobs import Job, JobId, JobPage, JobState
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor, Encoding
from sandboxer.work.jobs.desk import Seen
from sandboxer.work.jobs.lifecycle import State

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
WAIT_MAX_S = 60.0


@router.get(
    "",
    operation_id="listJobs",
    response_model=JobPage,
    responses=failures(),
    summary="List jobs, newest first",
)
async def list_jobs(
    request: Request,
    state: Annotated[JobState | None, Query()] = None,
    cursor: Annotated[Cursor | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT,
) -> Response:
    page = await platform_of(request).execution.jobs.list(
        caller(request), state=None if state is None else State(state), cursor=cursor, limit=limit
    )
    shown = [job_summary(found) for found in page.jobs]
    return json_response(JobPage.model_construct(jobs=shown, next_cursor=page.next_cursor))


@router.get(
    "/{job_id}",
    operation_id="getJob",
    response_model=Job,
    responses=failures(404),
    summary="Look at a job, and at what it has printed so far",
)
async def get_job(
    request: Request,
    job_id: JobId,
    wait_s: Annotated[
        float, Query(ge=0, le=WAIT_MAX_S, description="Answer when it has ended, or after so long.")
    ] = 0.0,
    encoding: Annotated[Encoding, Query()] = "utf-8",
) -> Response:
    jobs, who = platform_of(request).execution.jobs, caller(request)
    if wait_s > 0:
        async with until_client_goes(request.receive):
            seen = await jobs.wait(job_id, who, timeout_s=wait_s)
    else:
        seen = await jobs.get(job_id, who)
    return json_response(job(seen, encoding, await _version(request, seen)))


@router.delete(
    "/{job_id}",
    operation_id="cancelJob",
    response_model=Job,
    responses=failures(404, 409),
    summary="Cancel a job: answers with what it had printed; one that has ended stays as it is",
)
async def cancel_job(
    request: Request, job_id: JobId, encoding: Annotated[Encoding, Query()] = "utf-8"
) -> Response:
    seen = await platform_of(request).execution.jobs.cancel(job_id, caller(request))
    return json_response(job(seen, encoding, await _version(request, seen)))


async def _version(request: Request, seen: Seen) -> str | None:
    """Of the language, in the image that its sandbox was made from."""
    if seen.outcome is None or seen.job.sandbox_id is None:
        return None
    sandbox = await platform_of(request).sandboxes.room.book.find(seen.job.sandbox_id)
    return None if sandbox is None else await version_in(request, seen.job.language, sandbox.image)
