"""Services in unsandbox's words. Theirs is a machine that a script is run in once; ours is a program that is
kept running. Their script is our program: it runs, and if it ends well its machine stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, Handler, bind
from sandboxer.edges.http.operator_audit import note_use
from sandboxer.edges.http.routes.work import services as ours_of
from sandboxer.edges.unsandbox.sessions import put_files, run_inside
from sandboxer.edges.unsandbox.translation import (
    ask,
    bytes_in,
    every,
    listed,
    ours,
    read,
    sent,
    told,
    trust_of,
)
from sandboxer.kernel.errors import InvalidRequest, NotAvailable
from sandboxer.wire.operations import services as our_operations
from sandboxer.wire.operations.artifacts import ImagePath
from sandboxer.wire.services import (
    LOG_TAIL_MAX,
    ChangeService,
    ChangeVault,
    ClaimDomain,
    CreateService,
    RedeployService,
    SetVault,
)
from sandboxer.wire.unsandbox import models, operations

SCRIPT = "/tmp/bootstrap.sh"
# Its machine stays after the script, as unsandbox's does; a script that fails is a service that fails. What
# it started ends with it, so that the port is free for the next.
_COMMAND = f"""setsid sh -c 'if [ -x {SCRIPT} ]; then exec {SCRIPT}; else exec sh {SCRIPT}; fi' & group=$!
trap 'kill -TERM -- -$group $rest 2>/dev/null; wait; exit 143' TERM
wait $group || exit
sleep infinity & rest=$!
wait $rest"""
# What a service without a script is: nothing but a machine whose port answers.
_NOTHING = 'mkdir -p /tmp/empty && exec python3 -m http.server --directory /tmp/empty "$PORT"\n'
_STATES = {
    "running": "running",
    "unhealthy": "running",
    "sleeping": "frozen",
    "stopped": "frozen",
    "crash_looping": "failed",
    "failed": "failed",
    "removed": "failed",
}
_WEB = frozenset({"", "http", "https", "web"})
# With TLS and without: the platform's edge has both for one port.
_BOTH = {80, 443}
_MEMORY_MB = 2048
_Path = our_operations.ServicePath
_SOON, _WHEN_DONE = our_operations.WaitQuery(wait=False), our_operations.WaitQuery(wait=True)
Act = Callable[[Any], Awaitable[Any]]


async def create(asked: AskedBody[models.NewService]) -> Response:
    said = asked.body
    if (said.service_type or "").lower() not in _WEB:
        raise InvalidRequest(field="service_type", why="services here are reached by HTTP and WebSocket")
    made = await make(
        asked,
        name=said.name,
        ports=said.ports,
        script=script_of(said.bootstrap, said.bootstrap_content),
        trust=trust_of(said.network_mode),
        resources=None if said.vcpu is None else {"vcpus": said.vcpu, "memory_mb": _MEMORY_MB * said.vcpu},
        wake=said.unfreeze_on_demand,
        image=said.golden_image,
        files=said.input_files,
        env=said.env,
        secrets=variables(said.env_content or ""),
    )
    for domain in said.custom_domains:
        await _domain(asked, ours_of.claim_domain, made["id"], domain)
    return told(service(made))


async def make(
    asked: Any,
    *,
    ports: Sequence[int],
    script: str | None,
    files: Sequence[models.InputFile] = (),
    **more: Any,
) -> dict[str, Any]:
    """Returns a service of ours that was made as theirs are: open to everybody, with a script."""
    body = ours(
        CreateService,
        command=_COMMAND,
        files=[*_files(files), _script(script or _NOTHING)],
        port=port_of(ports),
        public=True,
        **more,
    )
    made: dict[str, Any] = await ask(ours_of.create, asked, query=_SOON, body=body)
    return made


def _script(text: str) -> dict[str, object]:
    # What says who runs it is run by that; the rest by a shell.
    return {"path": SCRIPT, "content": text, "mode": 0o755 if text.startswith("#!") else 0o644}


def _files(files: Sequence[models.InputFile]) -> list[dict[str, object]]:
    made: list[dict[str, object]] = []
    for file in files:
        bytes_in(file)
        path = file.filename if file.filename.startswith("/") else f"/tmp/{file.filename}"
        made.append({"path": path, "content": file.content, "encoding": "base64"})
    return made


def port_of(ports: Sequence[int]) -> int | None:
    """Returns the port that the service answers at; None: the one that it is told."""
    if len(ports) > 1 and set(ports) != _BOTH:
        raise InvalidRequest(field="ports", why="a service here has one port, which has TLS before it")
    return min(ports, default=None)


def script_of(bootstrap: str | None, content: str | None) -> str | None:
    """Returns a script; some clients send its address instead of it."""
    if bootstrap is not None and bootstrap.startswith(("http://", "https://")):
        why = "the platform fetches nothing; send the script itself as bootstrap_content"
        raise InvalidRequest(field="bootstrap", why=why)
    return content or bootstrap


def variables(text: str) -> dict[str, str]:
    """Returns the variables of a file `.env`."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, is_set, value = line.strip().removeprefix("export ").partition("=")
        if not is_set or name.startswith("#"):
            continue
        value = value.strip()
        is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        found[name.strip()] = value[1:-1] if is_quoted else value
    return found


async def list_services(asked: Asked) -> Response:
    found = await every(
        ours_of.list_services, asked, our_operations.ListServicesQuery, "services", state=None
    )
    return listed("services", [service(one) for one in found])


async def change(asked: AskedPathBody[_Path, models.ChangeService]) -> Response:
    """Changes what can be changed here. What a sleeping one shows is the same for everybody."""
    said = asked.body
    if said.network_mode is not None:
        raise InvalidRequest(field="network_mode", why="it is said when the service is made")
    body = ours(ChangeService, vcpus=said.vcpu, wake=said.unfreeze_on_demand)
    changed = await ask(ours_of.change, asked, query=_WHEN_DONE, body=body)
    return told(service(changed))


async def remove(asked: Asked[_Path]) -> Response:
    removed = await ask(ours_of.remove, asked)
    return told({**service(removed).model_dump(mode="json"), "message": "The service is removed."})


async def execute(asked: AskedPathBody[_Path, models.Command]) -> Response:
    found = asked.platform.services.get(asked.path.service, asked.caller)
    await put_files(asked, found.sandbox_id, asked.body.input_files)
    return await run_inside(asked, found.sandbox_id)


async def redeploy(asked: Asked[_Path]) -> Response:
    said = read(models.Redeploy, await sent(asked))
    script = script_of(said.bootstrap, said.bootstrap_content)
    files = [*_files(said.input_files), *([] if script is None else [_script(script)])]
    body = ours(RedeployService, files=files)
    return told(service(await ask(ours_of.redeploy, asked, query=_SOON, body=body)))


async def logs(asked: Asked[_Path, operations.ServiceLogsQuery]) -> Response:
    tail = LOG_TAIL_MAX if asked.query.all else asked.query.lines
    query = our_operations.ReadServiceLogsQuery(tail=tail)
    seen = await ask(ours_of.logs, asked, query=query)
    return told({"log": "".join(f"{line['text']}\n" for line in seen["lines"]), "lines": len(seen["lines"])})


async def domains(asked: AskedPathBody[_Path, models.ChangeDomains]) -> Response:
    """Adds and takes away. One leads here once it has shown the token that the answer names."""
    said, name = asked.body, asked.path.service
    standing = {one["domain"] for one in await _domains(asked)}
    wanted = {*standing, *said.add} if said.custom_domains is None else {*said.custom_domains}
    for domain in sorted(standing - wanted | standing & {*said.remove}):
        path = our_operations.DomainPath(service=name, domain=domain)
        await ask(ours_of.remove_domain, asked, path=path)
    for domain in sorted(wanted - standing - {*said.remove}):
        await _domain(asked, ours_of.claim_domain, name, domain)
    shown = await _domains(asked)
    return told({"custom_domains": [one["domain"] for one in shown], "domains": shown})


async def _domains(asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await ask(ours_of.list_domains, asked))["domains"]
    return found


async def _domain(asked: Any, act: Act, service_id: str, domain: str) -> None:
    await ask(act, asked, path=_Path(service=service_id), body=ours(ClaimDomain, domain=domain))


async def get_env(asked: Asked[_Path]) -> Response:
    return told(_vault(await ask(ours_of.get_vault, asked)))


async def set_env(asked: Asked[_Path]) -> Response:
    values = variables(_env_text(await sent(asked)))
    changed = await ask(ours_of.set_vault, asked, body=ours(SetVault, secrets=values))
    return told({**_vault(changed), "message": f"{len(values)} variables are set."})


def _env_text(body: bytes) -> str:
    """Returns the file `.env` that is sent: as it is, or in JSON under one of two names."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(field="body", why="it is not text in UTF-8") from None
    if not text.lstrip().startswith("{"):
        return text
    try:
        said = json.loads(text)
    except ValueError:
        raise InvalidRequest(field="body", why="it is neither JSON nor lines of NAME=value") from None
    found = next((said[name] for name in ("content", "env", "env_content") if said.get(name)), "")
    if isinstance(found, Mapping):
        return "".join(f"{name}={value}\n" for name, value in found.items())
    return str(found)


async def wipe_env(asked: Asked[_Path]) -> Response:
    names = read(models.EnvKeys, await sent(asked)).keys
    if not names:
        changed = await ask(ours_of.wipe_vault, asked)
    else:
        body = ours(ChangeVault, secrets=dict.fromkeys(names))
        changed = await ask(ours_of.change_vault, asked, body=body)
    return told({**_vault(changed), "message": "The variables are gone."})


async def export_env(asked: Asked[_Path]) -> Response:
    why = "what is in the vault of a service goes in and never comes out"
    raise NotAvailable(
        what="the export of a vault", why=why, hint="GET the same path without /export: names."
    )


def _vault(vault: Mapping[str, Any]) -> dict[str, Any]:
    names = vault["names"]
    return {"has_vault": bool(names), "count": len(names), "updated_at": vault["updated_at"], "keys": names}


async def spawn(asked: AskedPathBody[ImagePath, models.Spawn]) -> Response:
    said, image = asked.body, asked.path.image_id
    await note_use(asked.platform, asked.caller, "image", image, "spawn")
    made = await make(
        asked,
        name=said.name or f"img-{image[-12:]}",
        ports=said.ports,
        script=script_of(said.bootstrap, None),
        trust=trust_of(said.network_mode),
        image=image,
    )
    shown = service(made).model_dump(mode="json")
    return told({**shown, "source_image": image})


def service(seen: Mapping[str, Any]) -> models.Service:
    """Returns a service of ours in their words."""
    state = _STATES.get(seen["state"], "starting")
    port = seen["fixed_port"] or seen["port"]
    return models.Service(
        id=seen["id"],
        service_id=seen["id"],
        name=seen["name"],
        state=state,
        status=state,
        ports=[] if port is None else [port],
        reason=seen["reason"],
        url=seen["url"],
        domain=seen["host"],
        custom_domains=seen["domains"],
        container_name=seen["sandbox_id"],
        vcpu=None if seen["vcpus"] is None else max(1, int(seen["vcpus"])),
        locked=seen["locked_at"] is not None,
        unfreeze_on_demand=seen["wake"],
        created_at=seen["created_at"],
    )


def _verb(act: Act, asked_with: Any = None) -> Handler[Any, Any, Any, Any]:
    async def handle(asked: Asked[_Path]) -> Response:
        return told(service(await ask(act, asked, query=asked_with)))

    return handle


BINDINGS = (
    bind(operations.NEW_SERVICE, create),
    bind(operations.SERVICES, list_services),
    bind(operations.GET_SERVICE, _verb(ours_of.get)),
    bind(operations.CHANGE_SERVICE, change),
    bind(operations.RESIZE_SERVICE, change),
    bind(operations.REMOVE_SERVICE, remove),
    bind(operations.SERVICE_EXECUTE, execute),
    bind(operations.FREEZE_SERVICE, _verb(ours_of.freeze)),
    bind(operations.UNFREEZE_SERVICE, _verb(ours_of.thaw)),
    bind(operations.LOCK_SERVICE, _verb(ours_of.lock)),
    bind(operations.UNLOCK_SERVICE, _verb(ours_of.unlock)),
    bind(operations.REDEPLOY_SERVICE, redeploy),
    bind(operations.SERVICE_LOGS, logs),
    bind(operations.DOMAINS, domains),
    bind(operations.GET_ENV, get_env),
    bind(operations.SET_ENV, set_env),
    bind(operations.POST_ENV, set_env),
    bind(operations.WIPE_ENV, wipe_env),
    bind(operations.EXPORT_ENV, export_env),
    bind(operations.SPAWN, spawn),
)
