"""Code run once: answered whole, streamed as it happens, or queued as a job."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts.scopes import Scope
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.confirming import pass_gate
from sandboxer.edges.http.disconnect import until_client_goes
from sandboxer.edges.http.executions import execution, job_summary
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.key_scopes import demand_scope
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.mounting import mounts
from sandboxer.edges.http.offers import version_in
from sandboxer.edges.http.paying import offering, price_of_create
from sandboxer.edges.http.problems import request_id_of, response
from sandboxer.edges.http.routes.exec import bytes_of
from sandboxer.edges.http.sse import EVENT_STREAM, EventStream, ServerEvent
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.edges.http.streams import OutputEvents
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.wire.exec import ExecOutput
from sandboxer.wire.execute import ExecuteCode, ExecuteLater, Execution, ExecutionBegan, ExecutionOutput
from sandboxer.wire.operations import execute as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.work.execute.one_shot import Done, Placed, cut_short
from sandboxer.work.execute.running import Began, Ended, Said
from sandboxer.work.execute.submission import InputFile, Plan, Submission, make_plan
from sandboxer.work.jobs.records import Job


async def execute(asked: Asked[NoParameters, NoParameters, ExecuteCode]) -> Response:
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
        await _admit(asked.request, plan)
        async with (
            until_client_goes(asked.request.receive),
            offering(asked.request, lambda: price_of_create(platform, plan.create, who.account)),
        ):
            done = await platform.execution.one_shots.run(plan, who, also=bind)
        return json_response(await _shown(asked.request, done, plan, asked.body.encoding, began))

    async def recall(sandbox_id: str) -> Response | None:
        left = await platform.execution.one_shots.left_by(sandbox_id)
        return None if left is None else response(cut_short(left), request_id_of(asked.request.scope))

    return await once_bound(asked.request, act, recall=recall)


async def execute_later(asked: Asked[NoParameters, NoParameters, ExecuteLater]) -> Response:
    platform, who = asked.platform, asked.caller
    if asked.body.webhook_url is not None:
        platform.webhooks.check_url(asked.body.webhook_url)

    async def act(bind: Bind | None) -> Response:
        plan = await _plan(asked.request, asked.body)
        await _admit(asked.request, plan)
        # Raises what would refuse the create itself; money is asked for when the job starts.
        price_of_create(platform, plan.create, who.account)
        made = await platform.execution.jobs.submit(plan, who, webhook_url=asked.body.webhook_url, also=bind)
        return _accepted(made)

    async def recall(job_id: str) -> Response | None:
        return _accepted((await platform.execution.jobs.get(job_id, who)).job)

    return await once_bound(asked.request, act, recall=recall)


async def _admit(request: Request, plan: Plan) -> None:
    """May this caller run code in a sandbox made for it?"""
    await pass_gate(request, plan.create.profile)
    await demand_scope(request, Scope.EXEC)


async def _plan(request: Request, body: ExecuteCode) -> Plan:
    """Part of the act: what it names may be gone when the same answer is asked for again."""
    wanted = replace(submission(body), volumes=await mounts(request, body.volumes))
    return make_plan(wanted, await platform_of(request).execution.images.image_of())


def submission(body: ExecuteCode) -> Submission:
    stdin = None if body.stdin is None else bytes_of(body.stdin, body.stdin_encoding, field="stdin")
    files = tuple(
        InputFile(name=file.name, data=bytes_of(file.content, file.encoding, field=f"files.{number}.content"))
        for number, file in enumerate(body.files)
    )
    return Submission(
        code=body.code,
        language=body.language,
        argv=tuple(body.argv),
        stdin=stdin,
        files=files,
        env=body.env,
        trust=body.trust,
        ttl_s=body.ttl_s,
        vcpus=body.vcpus,
        memory_mb=body.memory_mb,
        disk_mb=body.disk_mb,
        profile=body.profile,
        artifacts=tuple(body.artifacts),
        output_limit=body.output_limit_bytes,
    )


def _accepted(made: Job) -> Response:
    answer = json_response(job_summary(made), 202)
    answer.headers["location"] = f"/v1/jobs/{made.id}"
    return answer


async def _shown(request: Request, done: Done, plan: Plan, encoding: str, began: float) -> Execution:
    return execution(
        done.outcome,
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
    await _admit(request, plan)
    outputs, stage = OutputEvents(encoding), "run"
    async with (
        offering(request, lambda: price_of_create(platform, plan.create, who.account)),
        aclosing(platform.execution.one_shots.stream(plan, who)) as events,
    ):
        async for event in events:
            match event:
                case Placed(sandbox_id=sandbox_id):
                    yield ServerEvent("placed", ExecutionBegan.model_construct(sandbox_id=sandbox_id))
                case Began():
                    # Each stage is text of its own: a cut character does not run over into the next.
                    outputs, stage = OutputEvents(encoding), event.stage.value
                    yield ServerEvent("began", ExecutionBegan.model_construct(stage=stage))
                case Said(output=output):
                    if piece := outputs.piece(output):
                        yield _output(piece, stage)
                case Ended():
                    for piece in outputs.rest():
                        yield _output(piece, stage)
                case Done():
                    yield ServerEvent("done", await _shown(request, event, plan, encoding, began))


def _output(piece: ServerEvent, stage: str) -> ServerEvent:
    data = piece.data
    assert isinstance(data, ExecOutput)
    shown = ExecutionOutput.model_construct(stage=stage, data=data.data, dropped=data.dropped)
    return ServerEvent(piece.name, shown)


BINDINGS: tuple[Binding, ...] = (
    bind(operations.EXECUTE_CODE, execute),
    bind(operations.EXECUTE_LATER, execute_later),
)
