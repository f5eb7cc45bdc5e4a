"""E2B's control plane: create, connect, list, pause, kill and so on, over the use cases of our own sandboxes.

What E2B has and this platform has not is refused by name, never passed over: whoever asks for it learns it
from the first call and not from a sandbox that behaves otherwise.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.access.egress.policy import Packages, policy_of
from sandboxer.access.egress.rules import Action, Injection, Policy, Rule, check_policy, pattern_of
from sandboxer.artifacts.clones import has_memory
from sandboxer.artifacts.records import OVER, USABLE
from sandboxer.backends.contract import KeepsMemory, Trust
from sandboxer.edges.e2b.answers import (
    DEFAULT_TAG,
    PAUSED,
    PROFILE,
    RUNNING,
    SNAPSHOT,
    STATES,
    TEMPLATE,
    TEMPLATES,
    answer,
    detail,
    labels_of,
    listed,
    log_entry,
    metric,
    opened,
    wanted_labels,
)
from sandboxer.edges.e2b.templates import begin, image_of, tagged
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, AskedQuery, Handler, bind
from sandboxer.edges.http.demands import gate_proof, pass_gate
from sandboxer.edges.http.idempotency import Bind, make_once
from sandboxer.edges.http.matcher import Binding, name_fields
from sandboxer.edges.http.routes import sandboxes as ours
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotAvailable, NotFound
from sandboxer.kernel.tasks import to_the_end
from sandboxer.sandboxes import records
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.promises import Wishes
from sandboxer.sandboxes.records import AtEnd
from sandboxer.sandboxes.requests import CreateRequest, WantedResources, WantedVolume
from sandboxer.sandboxes.use_cases import creation, inspection, lifetime, pause
from sandboxer.sandboxes.use_cases.memory import can_keep
from sandboxer.wire.e2b import control, operations
from sandboxer.wire.e2b.control import Said
from sandboxer.wire.operations.declaration import A, B, Operation, Q
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wiring import Platform

M = TypeVar("M", bound=Said)
_EVERYWHERE = frozenset({"0.0.0.0/0", "::/0"})
# Room for interpreters of several languages side by side.
_INTERPRETERS = WantedResources(memory_mb=1024)
_LOGS = 1000
# The template, and the program in it, by which clients that are given `mcp` serve it.
GATEWAY = "mcp-gateway"
# The first clients of each language that say how to pause only when they are told.
_SAYS_WHAT_IS_MEANT = {"python": (2, 55), "js": (2, 51)}
# Clients ask for what was until now, in whole seconds of a clock of their own.
_NOW_S = 60


async def create(asked: AskedBody[control.NewSandbox]) -> Response:
    _demand_known_client(asked.request)
    platform, who = asked.platform, asked.caller
    network = asked.body.network or control.Network()
    details = _details(platform, network, who)

    memory_at_end = _memory_at_end(asked)

    async def make(bind: Bind | None) -> records.Sandbox:
        wanted = await _with_source(asked, _wanted(asked.body, memory_at_end=memory_at_end))
        is_public, host = network.allow_public_traffic is not False, network.mask_request_host
        also = platform.access.ports.previews.opening(who, is_public=is_public, host=host, also=bind)
        try:
            async with platform.admission.of(wanted, who, gate_proof(asked.request)) as begun:
                made = await creation.create(platform.sandboxes, begun, who, also=also)
        except InvalidRequest as error:
            if error.facts.get("field") == "image":
                raise _no_template(asked.body.template_id, error.facts["why"]) from error
            raise
        try:
            if made.trust is Trust.SEMI and (details.rules or details.secrets):
                await platform.access.egress.change(made.id, who, lambda first: _with(first, details))
            if not await goes_on(platform, made):
                await begin(platform, made, who, asked.lease)
        except BaseException:
            await to_the_end(lifetime.destroy(platform.sandboxes, made.id, who))
            raise
        return made

    recall = partial(creation.recall, platform.sandboxes)

    def show(made: records.Sandbox) -> Response:
        return answer(opened(platform, made, who), 201)

    # Its tokens stand for the key that asks: another key of the account gets its own.
    return await make_once(asked.request, make, recall, show, is_personal=True)


def _no_template(name: str, why: object) -> NotFound:
    if name.removesuffix(DEFAULT_TAG) != GATEWAY:
        return NotFound(what="template", id=name, why=why)
    hint = (
        f"A gateway of MCP is a program of a template, and E2B's own is not here: make a template {GATEWAY}"
        f" in which a program {GATEWAY} is, or name yours beside `mcp`."
    )
    return NotFound(what="template", id=name, why=why, hint=hint)


def _demand_known_client(request: Request) -> None:
    """Raises InvalidRequest for clients before 1.0: they would look for another daemon inside."""
    version = request.headers.get("package_version", "")
    if version.startswith("0."):
        why = f"this SDK of E2B ({version[:20]}) is too old for the sandboxes here; install 1.0 or later"
        raise InvalidRequest(field="package_version", why=why)


def _memory_at_end(asked: AskedBody[control.NewSandbox]) -> bool:
    """Tells whether memory is kept when it is paused at its end. Raises InvalidRequest."""
    body, dependencies = asked.body, asked.platform.sandboxes
    backend = dependencies.backends.get(dependencies.profiles.get(PROFILE).backend)
    if body.auto_pause and isinstance(backend, KeepsMemory) and not body.volume_mounts:
        return body.auto_pause_memory is not False
    if body.auto_pause:
        refuse_memory(asked.request, control.Pause(memory=body.auto_pause_memory))
    return False


def _wanted(body: control.NewSandbox, *, memory_at_end: bool) -> CreateRequest:
    # What it says of `mcp` is passed over: clients start that program of the template themselves.
    if body.iam:
        raise InvalidRequest(field="iam", why="this platform does not have it")
    return CreateRequest(
        profile=PROFILE,
        ttl=f"{body.timeout}s",
        network=_network(body.network or control.Network(), body.allow_internet_access),
        env=body.env_vars,
        labels=labels_of(body.metadata),
        at_end=_at_end(body),
        wishes=Wishes(memory_at_end=memory_at_end),
        wanted_volumes=tuple(WantedVolume(volume=one.name, path=one.path) for one in body.volume_mounts),
    )


def _at_end(body: control.NewSandbox) -> AtEnd:
    wakes = body.auto_resume is not None and body.auto_resume.enabled
    if not body.auto_pause:
        if wakes:
            raise InvalidRequest(field="autoResume", why="only one that is paused at its end can be resumed")
        return AtEnd.DESTROY
    return AtEnd.SLEEP if wakes else AtEnd.STOP


async def _with_source(asked: AskedBody[control.NewSandbox], wanted: CreateRequest) -> CreateRequest:
    """Returns the request with what the name of a template stands for: the profile's image, a template of the
    caller's own, a snapshot, or another image.
    """
    name = asked.body.template_id.removesuffix(DEFAULT_TAG)
    if name in TEMPLATES:
        meant = image_of(asked.platform, name)
        return wanted if meant == TEMPLATE else replace(wanted, image=meant, resources=_INTERPRETERS)
    if (template := await tagged(asked.platform, asked.body.template_id, asked.caller)) is not None:
        return replace(wanted, image=template.id)
    snapshots = asked.platform.artifacts.snapshots
    if name.startswith(SNAPSHOT) and (await snapshots.get(name, asked.caller)).state not in OVER:
        return replace(wanted, snapshot=name)
    named = await snapshots.list(asked.caller, name=name)
    if usable := [one for one in named.records if one.state in USABLE]:
        return replace(wanted, snapshot=usable[0].id)
    try:
        image = control.NamedImage(image=name)
    except ValidationError:
        raise NotFound(what="template", id=name) from None
    return replace(wanted, image=(await name_fields(asked.platform, image, asked.caller)).image)


def _network(asked: control.Network, is_open: bool | None) -> str | None:
    """Returns the network in our words; None: as the profile has it."""
    if asked.egress_proxy:
        raise InvalidRequest(field="network.egressProxy", why="this platform does not have it")
    allowed, denied = asked.allow_out or [], asked.deny_out or []
    if is_open is False or not _EVERYWHERE.isdisjoint(denied):
        return f"allow:{','.join(allowed)}" if allowed else "none"
    if allowed and not denied:
        why = "say what is denied besides what is allowed: everything else is 0.0.0.0/0"
        raise InvalidRequest(field="network.denyOut", why=why)
    return None


def _details(platform: Platform, asked: control.Network, who: Caller) -> Policy:
    """Returns what a network has besides the word for it: rules against single hosts, and headers that are
    put into requests. Raises InvalidRequest.
    """
    headers = {
        (host.removesuffix(":443"), header): value
        for host, rules in (asked.rules or {}).items()
        for rule in rules
        for header, value in rule.transform.headers.items()
    }
    if any("${" in value for value in headers.values()):
        raise InvalidRequest(field="network.rules", why="nothing stands for something else in headers here")
    seal = platform.access.secrets.vault.sealed
    secrets = (
        Injection(host=host, header=header, secret=seal(who.account, value))
        for (host, header), value in headers.items()
    )
    return check_policy(Policy(rules=_denials(asked), secrets=tuple(secrets)))


def _with(policy: Policy, details: Policy) -> Policy:
    return replace(policy, rules=(*details.rules, *policy.rules), secrets=details.secrets)


def _denials(asked: control.Network) -> tuple[Rule, ...]:
    """Returns rules against single hosts; what is allowed by name is not denied. Raises InvalidRequest."""
    denied = {one.removesuffix("/32") for one in asked.deny_out or ()}
    if not _EVERYWHERE.isdisjoint(denied):
        return ()
    single = sorted(denied - set(asked.allow_out or ()))
    for one in single:
        if "/" in one:
            raise InvalidRequest(field="network.denyOut", why=f"{one!r} is a range; deny addresses, or all")
    return tuple(Rule(action=Action.DENY, host=pattern_of(one, "network.denyOut")) for one in single)


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
        image=image_of(asked.platform, query.template) if query.template in TEMPLATES else query.template,
        ready_since=query.started_after,
        cursor=query.next_token,
        limit=query.limit,
        oldest_first=query.order == "asc",
    )
    following = {} if page.next_cursor is None else {"x-next-token": page.next_cursor}
    return answer([listed(record) for record in page.records], headers=following)


async def get(asked: Asked[SandboxPath]) -> Response:
    return answer(detail(asked.platform, await present(asked), asked.caller))


async def kill(asked: Asked[SandboxPath]) -> Response:
    """Answers when its end is recorded, as E2B does: from then on nobody finds it, and it is removed
    meanwhile. One with volumes is waited for: whoever kills it may give them to another at once.
    """
    record = await present(asked)
    await ours.end(asked, wait=bool(record.volumes))
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
    is_paused = (await present(asked)).state in PAUSED
    record = await _awake(asked, asked.body)
    return answer(opened(asked.platform, record, asked.caller), 201 if is_paused else 200)


async def resume(asked: AskedPathBody[SandboxPath, control.Connect]) -> Response:
    return answer(opened(asked.platform, await _awake(asked, asked.body), asked.caller), 201)


async def pause_sandbox(asked: Asked[SandboxPath]) -> Response:
    record = await present(asked)
    memory = keeps_memory(asked, record, await _said(asked, control.Pause))
    if record.state in PAUSED:
        raise Conflict(why="it is paused already", hint="Connect to it to resume it.")
    await pause.stop(asked.platform.sandboxes, asked.path.sandbox_id, asked.caller, memory=memory)
    return Response(status_code=204)


def _always_says_memory(request: Request) -> bool:
    """Tells whether it is a client that asks for memory to be kept whenever it pauses, unless told otherwise:
    who uses it did not.
    """
    since = _SAYS_WHAT_IS_MEANT.get(request.headers.get("lang", ""))
    numbers = re.match(r"(\d+)\.(\d+)", request.headers.get("package_version", ""))
    return since is not None and numbers is not None and (int(numbers[1]), int(numbers[2])) < since


async def change_network(asked: AskedPathBody[SandboxPath, control.ChangeNetwork]) -> Response:
    """Replaces what it may reach; what is left out is as its profile says, and limits stay as they are."""
    record = await present(asked)
    network = _network(asked.body, asked.body.allow_internet_access)
    profile = asked.platform.sandboxes.profiles.find(record.profile)
    policy = Policy() if network == "none" else policy_of(network, profile, Packages())
    policy = _with(policy, _details(asked.platform, asked.body, asked.caller))
    await asked.platform.access.egress.change(
        record.id, asked.caller, lambda standing: replace(policy, limits=standing.limits)
    )
    return Response(status_code=204)


async def refuse_secrets(asked: Asked) -> Response:
    why = "secrets are given to sandboxes by this platform's own API and rules of egress"
    raise NotAvailable(what="E2B's API of secrets", why=why, hint="See `sandboxer secret --help`.")


async def metrics(asked: Asked[SandboxPath, operations.MetricsQuery]) -> Response:
    """Answers what it uses now, which is all that is known; of another time, nothing."""
    record, now = await present(asked), asked.platform.clock.now()
    if asked.query.end is not None and asked.query.end < now.timestamp() - _NOW_S:
        return answer([])
    usage = await inspection.usage(asked.platform.sandboxes, record.id, asked.caller)
    return answer([metric(record, usage, now)])


async def logs(asked: Asked[SandboxPath]) -> Response:
    record = await present(asked)
    page = await asked.platform.events.page(record.id, 0, _LOGS)
    return answer(control.Logs.model_construct(logs=[log_entry(event) for event in page]))


def keeps_memory(asked: Asked[SandboxPath, Any, Any], record: records.Sandbox, said: control.Pause) -> bool:
    """Tells whether what runs is kept too: where that can be, unless only files are asked for. Raises
    InvalidRequest for who asks for it where it cannot be.
    """
    if can_keep(asked.platform.sandboxes, record):
        return said.memory is not False
    refuse_memory(asked.request, said)
    return False


async def goes_on(platform: Platform, made: records.Sandbox) -> bool:
    """Tells whether what runs in a new sandbox was kept with the snapshot that it began as."""
    if made.origin is None or not made.origin.startswith(SNAPSHOT):
        return False
    kept = await platform.artifacts.snapshots.repository.find(made.origin)
    return kept is not None and has_memory(kept)


def refuse_memory(request: Request, asked: control.Pause) -> None:
    if asked.memory and not _always_says_memory(request):
        why = "the memory of processes cannot be kept here, files can; say mode 'filesystem', or no mode"
        raise InvalidRequest(field="memory", why=why)


async def present(asked: Asked[SandboxPath, Any, Any]) -> records.Sandbox:
    """Returns a sandbox that runs or is paused: E2B knows no others. Raises NotFound."""
    record = await asked.platform.sandboxes.visible(asked.path.sandbox_id, asked.caller)
    if record.state not in RUNNING | PAUSED:
        raise NotFound(what="sandbox", id=record.id)
    return record


async def _awake(asked: Asked[SandboxPath, Any, Any], body: control.Connect) -> records.Sandbox:
    record = await _live_for(asked, body.timeout, never_less=True)
    if record.state not in PAUSED:
        return record
    async with asked.platform.access.ports.waker.turn(record.id):
        # Another request may have woken it meanwhile.
        if (standing := await present(asked)).state not in PAUSED:
            return standing
        if standing.terms.memory_mb and body.memory is False:
            # It shall begin anew with its files.
            standing = await pause.stop(asked.platform.sandboxes, record.id, asked.caller)
        resumed = await pause.resume(asked.platform.sandboxes, record.id, asked.caller)
        if not standing.terms.memory_mb:
            await begin(asked.platform, resumed, asked.caller, asked.lease)
    return resumed


def bind_inside(
    operation: Operation[SandboxPath, Q, B, A], handler: Handler[SandboxPath, Q, B, A]
) -> Binding:
    """Binds an operation on what is inside a sandbox. One that sleeps until it is used wakes up for it."""

    async def awake(asked: Asked[SandboxPath, Q, B]) -> A | Response:
        record = await asked.platform.sandboxes.visible(asked.path.sandbox_id, asked.caller)
        if record.state is State.STOPPED and record.at_end is AtEnd.SLEEP:
            await _awake(asked, control.Connect())
        return await handler(asked)

    return bind(operation, awake)


async def _live_for(
    asked: Asked[SandboxPath, Any, Any], seconds: int, *, never_less: bool = False
) -> records.Sandbox:
    record = await present(asked)
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
    bind(operations.NETWORK, change_network),
    bind(operations.SECRETS, refuse_secrets),
    bind(operations.NEW_SECRET, refuse_secrets),
    bind(operations.METRICS, metrics),
    bind(operations.LOGS, logs),
)
