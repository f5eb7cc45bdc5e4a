"""Routes of code that runs once: answered as a whole, streamed as it happens, or queued as a job.

Jobs are shown, listed, awaited and cancelled here; `POST /v1/execute/async` creates them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import from_record, json_response, printable
from sandboxer.edges.http.binding import Asked, AskedBody, AskedQuery, bind
from sandboxer.edges.http.bodies import EVENT_STREAM, EventStream, OutputEvents, ServerEvent, Texts
from sandboxer.edges.http.demands import offering, pass_gate
from sandboxer.edges.http.disconnection import until_client_goes
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.problems import request_id_of, response
from sandboxer.edges.http.requests import caller, from_body, lease_of, mounts, platform_of
from sandboxer.edges.http.routes.catalogue import version_in
from sandboxer.edges.http.routes.work.processes import bytes_of
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.sandboxes.use_cases import creation
from sandboxer.wire import execute as wire
from sandboxer.wire.operations import execute as operations
from sandboxer.wire.processes import ExecOutput
from sandboxer.work.execute.one_shot import Done, Placed, cut_short
from sandboxer.work.execute.run import Began, Ended, Outcome, Said, StageResult
from sandboxer.work.execute.submission import InputFile, Plan, Submission, completed, make_plan
from sandboxer.work.jobs.records import Job, State
from sandboxer.work.jobs.use_cases import Seen


async def execute(asked: AskedBody[wire.ExecuteCode]) -> Response:
    began = time.perf_counter()
    if EVENT_STREAM in asked.request.headers.get("accept", ""):
        if "idempotency-key" in asked.request.headers:
            raise InvalidRequest(field="Idempotency-Key", why="a stream cannot be given a second time")
        return EventStream(
            _events(asked.request, await _plan(asked.request, asked.body), asked.body.encoding, began)
        )

    platform, who = asked.platform, asked.caller

    async def act(bind: Bind | None) -> Response:
        plan = await _plan(asked.request, asked.body)
        await pass_gate(asked.request, plan.create.profile)
        async with (
            until_client_goes(asked.request.receive),
            offering(asked.request, lambda: platform.purchases.price(plan.create, who.account)),
        ):
            done = await platform.execution.one_shots.run(plan, who, asked.lease, also=bind)
        texts = Texts()
        return texts.answer(await _shown(asked.request, done, plan, texts, asked.body.encoding, began))

    async def recall(sandbox_id: str) -> Response | None:
        left = await platform.execution.one_shots.left_by(sandbox_id)
        return None if left is None else response(cut_short(left), request_id_of(asked.request.scope))

    return await once_bound(asked.request, act, recall=recall)


async def execute_later(asked: AskedBody[wire.ExecuteLater]) -> Response:
    platform, who = asked.platform, asked.caller
    if asked.body.webhook_url is not None:
        platform.webhooks.check_url(asked.body.webhook_url)

    async def act(bind: Bind | None) -> Response:
        plan = await _plan(asked.request, asked.body)
        await pass_gate(asked.request, plan.create.profile)
        # Raises what would refuse the create itself; funds are checked when the job starts.
        platform.purchases.price(plan.create, who.account)
        made = await platform.execution.jobs.submit(plan, who, webhook_url=asked.body.webhook_url, also=bind)
        return _accepted(made)

    async def recall(job_id: str) -> Response | None:
        return _accepted((await platform.execution.jobs.get(job_id, who)).job)

    return await once_bound(asked.request, act, recall=recall)


async def _plan(request: Request, body: wire.ExecuteCode) -> Plan:
    """Makes the plan as part of the action: what it names may be gone when a repetition asks for the same
    answer.
    """
    given = await submission(body, lease_of(request.scope))
    wanted = replace(given, volumes=await mounts(request, body.volumes))
    platform = platform_of(request)
    plan = make_plan(wanted, await platform.execution.images.image_of())
    create = await platform.admission.complete(plan.create, caller(request))
    creation.check_image(platform.sandboxes, create)
    return plan if create is plan.create else completed(plan, create)


async def submission(body: wire.ExecuteCode, lease: Lease) -> Submission:
    stdin = None
    if body.stdin is not None:
        stdin = await bytes_of(body.stdin, body.stdin_encoding, lease, field="stdin")
    files = []
    for number, file in enumerate(body.files):
        data = await bytes_of(file.content, file.encoding, lease, field=f"files.{number}.content")
        files.append(InputFile(name=file.name, data=data))
    return from_body(
        Submission,
        body,
        argv=tuple(body.argv),
        stdin=stdin,
        files=tuple(files),
        volumes=(),
        artifacts=tuple(body.artifacts),
        output_limit=body.output_limit_bytes,
    )


def _accepted(made: Job) -> Response:
    return json_response(job_summary(made), 202, location=f"/v1/jobs/{made.id}")


async def _shown(
    request: Request, done: Done, plan: Plan, texts: Texts, encoding: str, began: float
) -> wire.Execution:
    return execution(
        done.outcome,
        texts,
        language=plan.language.name,
        version=await version_in(request, plan.language.name, done.image),
        encoding=encoding,
        sandbox_id=done.sandbox_id,
        sats=done.sats,
        total_ms=round((time.perf_counter() - began) * 1000, 3),
    )


async def _events(
    request: Request, plan: Plan, encoding: str, began: float
) -> AsyncGenerator[ServerEvent, None]:
    platform, who = platform_of(request), caller(request)
    await pass_gate(request, plan.create.profile)
    outputs, stage = OutputEvents(encoding), "run"
    async with (
        offering(request, lambda: platform.purchases.price(plan.create, who.account)),
        aclosing(platform.execution.one_shots.stream(plan, who, lease_of(request.scope))) as events,
    ):
        async for event in events:
            match event:
                case Placed(sandbox_id=sandbox_id):
                    yield ServerEvent("placed", wire.ExecutionBegan.model_construct(sandbox_id=sandbox_id))
                case Began():
                    # Each stage is decoded by itself: a cut character does not run over into the next.
                    outputs, stage = OutputEvents(encoding), event.stage.value
                    yield ServerEvent("began", wire.ExecutionBegan.model_construct(stage=stage))
                case Said(output=output):
                    if piece := outputs.piece(output):
                        yield _output(piece, stage)
                case Ended():
                    for piece in outputs.rest():
                        yield _output(piece, stage)
                case Done():
                    texts = Texts()
                    shown = await _shown(request, event, plan, texts, encoding, began)
                    yield ServerEvent("done", shown, texts=texts)


def _output(piece: ServerEvent, stage: str) -> ServerEvent:
    data = piece.data
    assert isinstance(data, ExecOutput)
    shown = wire.ExecutionOutput.model_construct(stage=stage, data=data.data, dropped=data.dropped)
    return ServerEvent(piece.name, shown, texts=piece.texts)


async def list_jobs(asked: AskedQuery[operations.ListJobsQuery]) -> wire.JobPage:
    page = await asked.platform.execution.jobs.list(
        asked.caller,
        state=None if asked.query.state is None else State(asked.query.state),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = [job_summary(found) for found in page.records]
    return wire.JobPage.model_construct(jobs=shown, next_cursor=page.next_cursor)


async def get_job(asked: Asked[operations.JobPath, operations.GetJobQuery]) -> Response:
    jobs, who = asked.platform.execution.jobs, asked.caller
    if asked.query.wait_s > 0:
        async with until_client_goes(asked.request.receive):
            seen = await jobs.wait(asked.path.job_id, who, timeout_s=asked.query.wait_s)
    else:
        seen = await jobs.get(asked.path.job_id, who)
    return await _job_shown(asked.request, seen, asked.query.encoding)


async def cancel_job(asked: Asked[operations.JobPath, operations.CancelJobQuery]) -> Response:
    seen = await asked.platform.execution.jobs.cancel(asked.path.job_id, asked.caller)
    return await _job_shown(asked.request, seen, asked.query.encoding)


async def _job_shown(request: Request, seen: Seen, encoding: str) -> Response:
    texts = Texts()
    return texts.answer(job(seen, texts, encoding, await _version(request, seen)))


async def _version(request: Request, seen: Seen) -> str | None:
    """Returns the version of the language in the image that the sandbox was made from."""
    if seen.outcome is None or seen.job.sandbox_id is None:
        return None
    sandbox = await platform_of(request).sandboxes.repository.find(seen.job.sandbox_id)
    return None if sandbox is None else await version_in(request, seen.job.language, sandbox.image)


def execution(
    outcome: Outcome,
    texts: Texts,
    *,
    language: str,
    version: str | None = None,
    encoding: str = "utf-8",
    sandbox_id: str | None = None,
    sats: int = 0,
    total_ms: float | None = None,
) -> wire.Execution:
    run = outcome.run
    return from_record(
        wire.Execution,
        outcome,
        language=language,
        version=version,
        sandbox_id=sandbox_id,
        stdout="" if run is None else texts.of(run.stdout, encoding),
        stderr="" if run is None else texts.of(run.stderr, encoding),
        stdout_dropped=0 if run is None else run.stdout_dropped,
        stderr_dropped=0 if run is None else run.stderr_dropped,
        encoding=encoding,
        duration_ms=None if run is None or run.end is None else run.end.duration_ms,
        total_ms=total_ms,
        compile=_compiled(outcome.compile, texts, encoding),
        artifacts=[
            wire.Artifact.model_construct(
                name=printable(one.name),
                size=len(one.data),
                mode=one.mode,
                content=texts.of(one.data, "base64"),
            )
            for one in outcome.collected.artifacts
        ],
        left_out=[
            wire.LeftOut.model_construct(name=printable(one.name), why=one.why, size=one.size)
            for one in outcome.collected.left_out
        ],
        sats=sats,
    )


def job(seen: Seen, texts: Texts, encoding: str, version: str | None) -> wire.Job:
    found = seen.job
    result = None
    if seen.outcome is not None:
        result = execution(
            seen.outcome,
            texts,
            language=found.language,
            version=version,
            encoding=encoding,
            sandbox_id=found.sandbox_id,
            sats=found.sats,
        )
    return from_record(wire.Job, job_summary(found), result=result)


def job_summary(found: Job) -> wire.JobSummary:
    problem = None if found.problem is None else wire.JobProblem.model_construct(**found.problem)
    return from_record(wire.JobSummary, found, problem=problem)


def _compiled(stage: StageResult | None, texts: Texts, encoding: str) -> wire.Compiled | None:
    if stage is None:
        return None
    end = stage.end
    return wire.Compiled.model_construct(
        exit_code=None if end is None else end.exit_code,
        stdout=texts.of(stage.stdout, encoding),
        stderr=texts.of(stage.stderr, encoding),
        stdout_dropped=stage.stdout_dropped,
        stderr_dropped=stage.stderr_dropped,
        timed_out=end is not None and end.timed_out,
        duration_ms=None if end is None else end.duration_ms,
    )


BINDINGS = (
    bind(operations.EXECUTE_CODE, execute),
    bind(operations.EXECUTE_LATER, execute_later),
    bind(operations.LIST_JOBS, list_jobs),
    bind(operations.GET_JOB, get_job),
    bind(operations.CANCEL_JOB, cancel_job),
)
