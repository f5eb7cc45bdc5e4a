"""Brings up the compose file of a sandbox's workspace on the host, and waits until all of it is ready.

What compose is given is the file as compose itself reads it, with networks that lead nowhere else. Decisions
are pure; `bring_up` acts.
"""

from __future__ import annotations

import re
import shlex
import time
from asyncio import sleep
from collections.abc import Mapping
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

import yaml

from sandboxer.backends.compose_ssh.engine import folder_of
from sandboxer.backends.compose_ssh.host import RemoteHost
from sandboxer.kernel.errors import InvalidRequest, ProvisionFailed
from sandboxer.kernel.values import value_class

PROMISE = "inputs.compose_bundle_ref"
# Looked for in this order, where no file is named, as compose does.
NAMES = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")
LOOK_EVERY_S = 0.5
# Of the host's own environment: a caller's variable must not change what runs there, nor whom it speaks with.
_HOSTS = re.compile(r"PATH|HOME|USER|SHELL|IFS|ENV|TMPDIR|LD_.*|DOCKER_.*|COMPOSE_.*|BASH_.*|PYTHON.*|SSH_.*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_COMPOSE = """
if docker compose version >/dev/null 2>&1; then compose="docker compose"; else compose=docker-compose; fi
eval "$(cat)"
"""

# $1: the workspace; the rest: files that may be. Prints the first that is there.
FIND = """
cd "$1" || exit 1; shift
for one in "$@"; do [ ! -f "$one" ] || { echo "$one"; exit 0; }; done
"""

# $1: its id, $2: the file; stdin: variables. Prints what compose makes of it.
READ = f'{_COMPOSE} $compose -p "$1" -f "$2" config'

# $1: the folder; stdin: the text.
WRITE = 'umask 077; cat >"$1/stack.yml"'

# $1: its id, $2: its folder, $3: seconds; stdin: variables. What builds or pulls is ended in time, too.
UP = f"""
{_COMPOSE}
timeout -k 10 "$3" $compose -p "$1" -f "$2/stack.yml" up -d --remove-orphans </dev/null &
echo $! >"$2/up.pid"
wait $! || exit $?
rm -f "$2/up.pid"
for one in $(docker network ls -q --filter "label=com.docker.compose.project=$1"); do
    names=$(docker network inspect --format '{{{{range .Containers}}}}{{{{.Name}}}} {{{{end}}}}' "$one")
    case " $names " in *" $1 "*) ;; *) docker network connect "$one" "$1" || exit 1 ;; esac
done
"""

# $1: its id. Prints, of each container: service, state, exit code, health; separated by `|`.
_STATE = "{{.State.Status}}|{{.State.ExitCode}}|{{if .State.Health}}{{.State.Health.Status}}{{end}}"
LOOK = f"""
ids=$(docker ps -aq --filter "label=com.docker.compose.project=$1") || exit 1
[ -z "$ids" ] || docker inspect --format \\
    '{{{{index .Config.Labels "com.docker.compose.service"}}}}|{_STATE}' $ids
"""

# $1: its id, $2: a service.
LAST_WORDS = """
project=com.docker.compose.project service=com.docker.compose.service
for one in $(docker ps -aq --filter "label=$project=$1" --filter "label=$service=$2"); do
    docker logs --tail 20 "$one" 2>&1 | tail -c 800
done
"""


class Readiness(StrEnum):
    READY = "ready"
    WAITING = "waiting"
    FAILED = "failed"


@value_class
class ServiceState:
    name: str
    # As the engine calls it.
    state: str
    exit_code: int
    # Empty: nothing says how it is.
    health: str

    @property
    def readiness(self) -> Readiness:
        """One that ended with 0 has done what it was for."""
        if self.state == "exited":
            return Readiness.READY if self.exit_code == 0 else Readiness.FAILED
        if self.state == "dead" or self.health == "unhealthy":
            return Readiness.FAILED
        is_up = self.state == "running" and self.health in ("", "healthy", "none")
        return Readiness.READY if is_up else Readiness.WAITING

    def __str__(self) -> str:
        if self.state == "exited":
            return f"{self.name} exited with {self.exit_code}"
        return f"{self.name} is {self.health or self.state}"


def states_of(printed: str) -> list[ServiceState]:
    found = []
    for line in printed.splitlines():
        name, state, code, health = line.split("|")
        found.append(ServiceState(name=name, state=state, exit_code=int(code), health=health))
    return found


def files_named(bundle: str | None) -> list[str]:
    """Returns the files that a bundle may mean, in a workspace. Raises InvalidRequest."""
    if bundle is None:
        return list(NAMES)
    path = PurePosixPath(bundle)
    if path.is_absolute() or ".." in path.parts or not bundle.isprintable() or "://" in bundle:
        raise InvalidRequest(field=PROMISE, why="it is no path of a file in the repository")
    return [str(path), *(str(path / name) for name in NAMES)]


def closed(text: str, network: str) -> str:
    """Returns a compose file whose networks lead to nothing outside: its default one is that of the sandbox.
    Raises ProvisionFailed.
    """
    try:
        whole = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise failed(f"compose printed what cannot be read: {error}") from None
    services: dict[str, Any] = (whole or {}).get("services") or {}
    if not services:
        raise failed("it names no services")
    networks: dict[str, Any] = whole.get("networks") or {}
    for name, said in networks.items():
        networks[name] = {**(said or {}), "internal": True} if not (said or {}).get("external") else said
    networks["default"] = {"external": True, "name": network}
    for service in services.values():
        if "network_mode" not in service:
            # Names beyond its networks are nobody's: else the engine would ask for them.
            service.setdefault("dns", ["127.0.0.1"])
    return yaml.safe_dump({**whole, "networks": networks}, sort_keys=False)


def told(variables: Mapping[str, str]) -> bytes:
    """Writes variables as a shell reads them; what would change the host's own commands is left out."""
    given = {name: value for name, value in variables.items() if _NAME.fullmatch(name)}
    lines = [
        f"export {name}={shlex.quote(value)}" for name, value in given.items() if not _HOSTS.fullmatch(name)
    ]
    return "\n".join(lines).encode()


def failed(why: str) -> ProvisionFailed:
    return ProvisionFailed(
        step="setup",
        promise=PROMISE,
        why=f"the stack: {why}",
        hint="Mend the compose file, and create it again.",
    )


async def bring_up(
    host: RemoteHost, sandbox_id: str, bundle: str | None, variables: Mapping[str, str], *, within_s: float
) -> bool:
    """Returns False if there is no such file. Raises ProvisionFailed if it does not come up in time."""
    deadline = time.monotonic() + within_s
    folder = folder_of(host.place.remote_dir, sandbox_id)
    found = await host.run(FIND, f"{folder}/workspace", *files_named(bundle))
    if not (name := found.stdout.decode(errors="replace").strip()):
        return False
    env = told(variables)
    read = await host.run(READ, sandbox_id, f"{folder}/workspace/{name}", stdin=env)
    if read.code != 0:
        raise failed(read.last_words)
    stack = closed(read.stdout.decode(errors="replace"), sandbox_id)
    written = await host.run(WRITE, folder, stdin=stack.encode())
    if written.code != 0:
        raise failed(written.last_words)
    up = await host.run(UP, sandbox_id, folder, f"{within_s:.0f}", stdin=env, within_s=within_s + 30)
    if up.code == 124:
        raise failed(f"it was not up within {within_s:g} s")
    if up.code != 0:
        raise failed(up.last_words)
    await _until_ready(host, sandbox_id, deadline, within_s)
    return True


async def _until_ready(host: RemoteHost, sandbox_id: str, deadline: float, within_s: float) -> None:
    while True:
        seen = await host.run(LOOK, sandbox_id)
        states = states_of(seen.stdout.decode(errors="replace"))
        for one in states:
            if one.readiness is Readiness.FAILED:
                words = (await host.run(LAST_WORDS, sandbox_id, one.name)).stdout.decode(errors="replace")
                raise failed(f"{one}: {words.strip()}")
        waiting = [str(one) for one in states if one.readiness is Readiness.WAITING]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise failed(f"it is not ready within {within_s:g} s: {', '.join(waiting)}")
        # The engine tells of health in events, and of what was ready before in none.
        await sleep(LOOK_EVERY_S)
