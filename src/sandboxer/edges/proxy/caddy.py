"""The configuration of the TLS edge: Caddy stands in front of the API and the ports and obtains certificates.

The configuration decides which name goes where. Caddy asks the platform before it obtains a certificate for a
name (`ask`), because strangers could otherwise make it obtain any number.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandboxer.kernel.errors import InvalidRequest, NotAvailable
from sandboxer.kernel.tasks import own_tasks
from sandboxer.kernel.values import value_class
from sandboxer.work.services.domains import WELL_KNOWN

ASK = "/v1/edge/ask"


@value_class
class EdgePlan:
    """What stands behind the edge, and under which names."""

    # The name of the API; None if only ports are served.
    site: str | None
    # Of ports and services; clients of E2B find the API and the daemons of sandboxes below it too.
    domain: str
    api: str
    ports: str
    https_port: int = 443
    # Whether Caddy's own authority issues certificates instead of a public one.
    internal: bool = False
    # Names of somebody else's, which clients have built in and a resolver leads here: Caddy's own authority
    # issues their certificates.
    others: tuple[str, ...] = ()
    # Whether one wildcard certificate serves all names of ports.
    certificate: Path | None = None
    key: Path | None = None
    # Where Caddy keeps certificates; None for its default place.
    storage: Path | None = None
    # Whether this server runs Caddy: then it has no admin port and installs nothing on this machine.
    is_supervised: bool = False


def render(plan: EdgePlan) -> str:
    parts = [_options(plan)]
    if plan.site is not None:
        parts.append(_api(plan, plan.site, is_internal=plan.internal))
    parts += [_api(plan, name, is_internal=True) for name in plan.others]
    parts.append(_ports(plan))
    if not plan.is_supervised:
        parts.append(_plain(plan))
    return "\n".join(parts)


def _options(plan: EdgePlan) -> str:
    lines = []
    if plan.is_supervised:
        lines += ["admin off", "skip_install_trust", "auto_https disable_redirects"]
    if plan.storage is not None:
        lines.append(f"storage file_system {_quoted(plan.storage)}")
    if plan.https_port != 443:
        lines.append(f"https_port {plan.https_port}")
    lines += ["on_demand_tls {", f"\task http://{plan.api}{ASK}", "}"]
    return "{\n" + "".join(f"\t{line}\n" for line in lines) + "}\n"


def _api(plan: EdgePlan, name: str, *, is_internal: bool) -> str:
    """Returns the route to the API. Requests are signed over method, path with query and body, so nothing may
    rewrite them.
    """
    tls = "\ttls internal\n" if is_internal else ""
    return f"""https://{name}:{plan.https_port} {{
{tls}	# The platform shows its metrics to loopback only, and through a proxy everyone looks like loopback.
	@private path /metrics /metrics/* {ASK}
	respond @private 404

	reverse_proxy {plan.api} {{
		# Command output and events arrive as they happen; uploads are passed on as they come.
		flush_interval -1
		# A server restart takes a moment: hold requests rather than fail them.
		lb_try_duration 5s
		lb_try_interval 100ms
	}}
}}
"""


def _ports(plan: EdgePlan) -> str:
    if plan.certificate is not None and plan.key is not None:
        tls = f"tls {_quoted(plan.certificate)} {_quoted(plan.key)}"
    elif plan.internal:
        tls = "tls internal {\n\t\ton_demand\n\t}"
    else:
        tls = "tls {\n\t\ton_demand\n\t}"
    return f"""# Ports of sandboxes, services, and domains of customers: whatever name is ours.
https://:{plan.https_port} {{
	{tls}

	# Clients of E2B call the API and the daemon of each sandbox by name (docs/guides/e2b.md).
	@e2b header_regexp Host ^(api|(49983|49999)-sbx-[0-9a-z]+)\\.{re.escape(plan.domain)}(:[0-9]+)?$
	# Streams are passed on at once all the same, and a client that leaves is noticed, so that its code ends.
	reverse_proxy @e2b {plan.api} {{
		lb_try_duration 5s
		lb_try_interval 100ms
	}}

	reverse_proxy {plan.ports} {{
		flush_interval -1
		lb_try_duration 5s
		lb_try_interval 100ms
	}}
}}
"""


def _plain(plan: EdgePlan) -> str:
    return f"""# All else goes on by TLS; the proof of a customer's domain is looked at again without.
http:// {{
	handle {WELL_KNOWN} {{
		reverse_proxy {plan.ports}
	}}
	handle {{
		redir https://{{host}}{_suffix(plan)}{{uri}} 308
	}}
}}
"""


def _suffix(plan: EdgePlan) -> str:
    return "" if plan.https_port == 443 else f":{plan.https_port}"


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


log = logging.getLogger(__name__)
# A Caddy that dies at once is not started a thousand times a second.
PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
STOP_S = 10.0


def find_caddy() -> str:
    if (found := shutil.which("caddy")) is None:
        raise NotAvailable(
            what="HTTPS",
            why="Caddy is not installed",
            hint="apt-get install caddy, or serve without --https.",
        )
    return found


async def write_plan(plan: EdgePlan, file: Path) -> None:
    """Writes the configuration and has Caddy check it. Raises InvalidRequest with what Caddy says."""
    caddy = find_caddy()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(render(plan))
    words = ("validate", "--adapter", "caddyfile", "--config", str(file))
    checking = await asyncio.create_subprocess_exec(
        caddy,
        *words,
        env=_environment(file),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await checking.communicate()
    if checking.returncode:
        raise InvalidRequest(field="edge", why=f"Caddy refuses it: {said.decode(errors='replace')[-500:]}")


@asynccontextmanager
async def running_edge(plan: EdgePlan, folder: Path) -> AsyncIterator[None]:
    """Runs Caddy while this is open."""
    file = folder / "Caddyfile"
    await write_plan(plan, file)
    async with own_tasks() as tasks:
        tasks.start(_keep_running(file), name="caddy")
        yield


async def _keep_running(file: Path) -> None:
    pause = PAUSE_S
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        await _run(file)
        if loop.time() - began > LONGEST_PAUSE_S:
            pause = PAUSE_S
        log.warning("Caddy ended; it is started again in %g s", pause)
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_S)


async def _run(file: Path) -> None:
    words = ("run", "--adapter", "caddyfile", "--config", str(file))
    with (file.parent / "caddy.log").open("ab") as kept:
        process = await asyncio.create_subprocess_exec(
            find_caddy(), *words, env=_environment(file), stdout=kept, stderr=kept, start_new_session=True
        )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def _environment(file: Path) -> dict[str, str]:
    """Returns an environment without ours, which may contain keys."""
    return {"HOME": str(file.parent), "PATH": os.defpath}
