"""E2B's control plane: create, connect, list, pause, kill and so on, over the use cases of our own sandboxes.

What E2B has and this platform has not is refused by name, never passed over: whoever asks for it learns it
from the first call and not from a sandbox that behaves otherwise.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.e2b.answers import (
    PAUSED,
    PROFILE,
    RUNNING,
    STATES,
    TEMPLATE,
    TEMPLATES,
    answer,
    detail,
    listed,
    log_entry,
    metric,
    opened,
)
from sandboxer.edges.e2b.metadata import labels_of, wanted_labels
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, AskedQuery, bind
from sandboxer.edges.http.demands import gate_proof, pass_gate
from sandboxer.edges.http.idempotency import Bind, make_once
from sandboxer.edges.http.routes import sandboxes as ours
from sandboxer.kernel.errors import InvalidRequest, NotFound
from sandboxer.sandboxes import records
from sandboxer.sandboxes.requests import CreateRequest, WantedVolume
from sandboxer.sandboxes.use_cases import creation, inspection, lifetime, pause
from sandboxer.wire.e2b import control, operations
from sandboxer.wire.e2b.control import Said
from sandboxer.wire.operations.sandboxes import SandboxPath

M = TypeVar("M", bound=Said)
_EVERYWHERE = ("0.0.0.0/0", "::/0")
_LOGS = 1000
# The first clients of each language that say how to pause only when they are told.
_SAYS_WHAT_IS_MEANT = {"python": (2, 55), "js": (2, 51)}
# Clients ask for what was until now, in whole seconds of a clock of their own.
_NOW_S = 60


async def create(asked: AskedBody[control.NewSandbox]) -> Response:
    _demand_known_client(asked.request)
    platform, who, wanted = asked.platform, asked.caller, _wanted(asked.body)
    is_public = asked.body.network is None or asked.body.network.allow_public_traffic is not False

    async def make(bind: Bind | None) -> records.Sandbox:
        also = platform.access.ports.previews.opening(who, is_public=is_public, also=bind)
        try:
            async with platform.admission.of(wanted, who, gate_proof(asked.request)) as begun:
                return await creation.create(platform.sandboxes, begun, who, also=also)
        except InvalidRequest as error:
            if error.facts.get("field") == "image":
                raise NotFound(what="template", id=asked.body.template_id, why=error.facts["why"]) from error
            raise

    recall = partial(creation.recall, platform.sandboxes)

    def show(made: records.Sandbox) -> Response:
        return answer(opened(platform, made, who), 201)

    # Its tokens stand for the key that asks: another key of the account gets its own.
    return await make_once(asked.request, make, recall, show, is_personal=True)


def _demand_known_client(request: Request) -> None:
    """Raises InvalidRequest for clients before 1.0: they would look for another daemon inside."""
    version = request.headers.get("package_version", "")
    if version.startswith("0."):
        why = f"this SDK of E2B ({version[:20]}) is too old for the sandboxes here; install 1.0 or later"
        raise InvalidRequest(field="package_version", why=why)


def _wanted(body: control.NewSandbox) -> CreateRequest:
    # A gateway of MCP is a program of the template, which clients start themselves.
    for field, is_asked in (("autoPause", body.auto_pause), ("iam", body.iam)):
        if is_asked:
            raise InvalidRequest(field=field, why="this platform does not have it")
    return CreateRequest(
        profile=PROFILE,
        image=None if body.template_id in TEMPLATES else body.template_id,
        ttl=f"{body.timeout}s",
        network=_network(body),
        env=body.env_vars,
        labels=labels_of(body.metadata),
        wanted_volumes=tuple(WantedVolume(volume=one.name, path=one.path) for one in body.volume_mounts),
    )


def _network(body: control.NewSandbox) -> str | None:
    allowed = (body.network and body.network.allow_out) or []
    denied = (body.network and body.network.deny_out) or []
    if body.allow_internet_access is False or (denied and not allowed):
        denied = denied or list(_EVERYWHERE)
    if not allowed and not denied:
        return None
    if not set(denied) <= set(_EVERYWHERE) or not denied:
        why = "say what is allowed, and deny everything else (0.0.0.0/0); other rules are not understood"
        raise InvalidRequest(field="network", why=why)
    return f"allow:{','.join(allowed)}" if allowed else "none"


async def list_sandboxes(asked: AskedQuery[operations.ListQuery]) -> Response:
    query = asked.query
    words = query.state.split(",") if query.state else list(STATES)
    if unknown := [word for word in words if word not in STATES]:
        raise InvalidRequest(field="state", why=f"{unknown[0]!r} is neither running nor paused")
    page = await inspection.list_sandboxes(
        asked.platform.sandboxes,
        asked.caller,
        labels=wanted_labels(query.metadata),
        states=frozenset().union(*(STATES[word] for word in words)),
        image=TEMPLATE if query.template in TEMPLATES else query.template,
        ready_since=query.started_after,
        cursor=query.next_token,
        limit=query.limit,
        oldest_first=query.order == "asc",
    )
    following = {} if page.next_cursor is None else {"x-next-token": page.next_cursor}
    return answer([listed(record) for record in page.records], headers=following)


async def get(asked: Asked[SandboxPath]) -> Response:
    return answer(detail(asked.platform, await _present(asked), asked.caller))


async def kill(asked: Asked[SandboxPath]) -> Response:
    await _present(asked)
    await ours.destroy(asked)
    return Response(status_code=204)


async def set_timeout(asked: AskedPathBody[SandboxPath, control.Timeout]) -> Response:
    await _live_for(asked, asked.body.timeout)
    return Response(status_code=204)


async def refresh(asked: Asked[SandboxPath]) -> Response:
    body = await _said(asked, control.Refresh)
    await _live_for(asked, 60 if body.duration is None else body.duration, never_less=True)
    return Response(status_code=204)


async def connect(asked: AskedPathBody[SandboxPath, control.Connect]) -> Response:
    """Resumes it if it is paused. A running one ends no sooner than before."""
    is_paused = (await _present(asked)).state in PAUSED
    record = await _awake(asked, asked.body)
    return answer(opened(asked.platform, record, asked.caller), 201 if is_paused else 200)


async def resume(asked: AskedPathBody[SandboxPath, control.Connect]) -> Response:
    return answer(opened(asked.platform, await _awake(asked, asked.body), asked.caller), 201)


async def pause_sandbox(asked: Asked[SandboxPath]) -> Response:
    await _present(asked)
    if (await _said(asked, control.Pause)).memory and not _always_says_memory(asked.request):
        why = "the memory of processes cannot be kept here, files can; pause with mode 'filesystem'"
        raise InvalidRequest(field="memory", why=why)
    await pause.stop(asked.platform.sandboxes, asked.path.sandbox_id, asked.caller)
    return Response(status_code=204)


def _always_says_memory(request: Request) -> bool:
    """Tells whether it is a client that asks for memory to be kept whenever it pauses, unless told otherwise:
    who uses it did not.
    """
    since = _SAYS_WHAT_IS_MEANT.get(request.headers.get("lang", ""))
    numbers = re.match(r"(\d+)\.(\d+)", request.headers.get("package_version", ""))
    return since is not None and numbers is not None and (int(numbers[1]), int(numbers[2])) < since


async def metrics(asked: Asked[SandboxPath, operations.MetricsQuery]) -> Response:
    """Answers what it uses now, which is all that is known; of another time, nothing."""
    record, now = await _present(asked), asked.platform.clock.now()
    if asked.query.end is not None and asked.query.end < now.timestamp() - _NOW_S:
        return answer([])
    usage = await inspection.usage(asked.platform.sandboxes, record.id, asked.caller)
    return answer([metric(record, usage, now)])


async def logs(asked: Asked[SandboxPath]) -> Response:
    record = await _present(asked)
    page = await asked.platform.events.page(record.id, 0, _LOGS)
    return answer(control.Logs.model_construct(logs=[log_entry(event) for event in page]))


async def _present(asked: Asked[SandboxPath, Any, Any]) -> records.Sandbox:
    """Returns a sandbox that runs or is paused: E2B knows no others. Raises NotFound."""
    record = await asked.platform.sandboxes.visible(asked.path.sandbox_id, asked.caller)
    if record.state not in RUNNING | PAUSED:
        raise NotFound(what="sandbox", id=record.id)
    return record


async def _awake(asked: AskedPathBody[SandboxPath, Any], body: control.Connect) -> records.Sandbox:
    record = await _live_for(asked, body.timeout, never_less=True)
    if record.state not in PAUSED:
        return record
    return await pause.resume(asked.platform.sandboxes, record.id, asked.caller)


async def _live_for(
    asked: AskedPathBody[SandboxPath, Any], seconds: int, *, never_less: bool = False
) -> records.Sandbox:
    record = await _present(asked)
    await pass_gate(asked.request, record.profile)
    left = timedelta(seconds=seconds)
    return await lifetime.set_left(
        asked.platform.sandboxes, record.id, left, asked.caller, never_less=never_less
    )


async def _said(asked: AskedPathBody[SandboxPath, Any], model: type[M]) -> M:
    """Returns a body that older clients leave out."""
    return model.model_validate_json(await asked.request.body() or b"{}")


BINDINGS = (
    bind(operations.CREATE, create),
    bind(operations.CREATE_V2, create),
    bind(operations.LIST, list_sandboxes),
    bind(operations.LIST_V1, list_sandboxes),
    bind(operations.GET, get),
    bind(operations.KILL, kill),
    bind(operations.SET_TIMEOUT, set_timeout),
    bind(operations.REFRESH, refresh),
    bind(operations.CONNECT, connect),
    bind(operations.CONNECT_V2, connect),
    bind(operations.PAUSE, pause_sandbox),
    bind(operations.RESUME, resume),
    bind(operations.METRICS, metrics),
    bind(operations.LOGS, logs),
)
