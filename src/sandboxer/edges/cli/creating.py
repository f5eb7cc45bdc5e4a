"""`create`: a sandbox; without arguments a canary that looks around and reports on its host."""

from __future__ import annotations

import json as jsons
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from sandboxer.edges.cli.finding import show_sandbox
from sandboxer.edges.cli.mounting import VolumeOption, mounts
from sandboxer.edges.cli.options import Json, StateDir, Url, client, pairs
from sandboxer.edges.cli.output import err, facts_table, out, print_json
from sandboxer.sdk.sync.sandbox import Sandbox

app = typer.Typer(rich_markup_mode="rich")
CANARY = "profile.sandbox-canary"
# For platforms whose canary profile reports nothing by itself.
LOOK_AROUND = """
import json, os, platform
print(json.dumps({
    "kernel": platform.release(),
    "system": platform.freedesktop_os_release().get("PRETTY_NAME", "?"),
    "python": platform.python_version(),
    "host_name": platform.node(),
    "cpus": len(os.sched_getaffinity(0)),
    "load": os.getloadavg(),
    "user": os.getuid(),
    "processes_visible": sum(name.isdigit() for name in os.listdir("/proc")),
}))
"""


@app.command("create")
def create(
    profile: Annotated[str | None, typer.Option(help="Recipe, as in `profile.agent-dev`.")] = None,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    image: Annotated[str | None, typer.Option(help="Base image.")] = None,
    trust: Annotated[str | None, typer.Option(help="Network: zero or semi.")] = None,
    ttl: Annotated[str | None, typer.Option(help="Life, counted from ready: 30s, 15m, 4h, 2d.")] = None,
    idle_timeout: Annotated[str | None, typer.Option(help="End after so long without work.")] = None,
    vcpus: Annotated[float | None, typer.Option(help="CPU cores.")] = None,
    memory_mb: Annotated[int | None, typer.Option(help="Memory in MiB.")] = None,
    disk_mb: Annotated[int | None, typer.Option(help="Disk in MiB.")] = None,
    pids: Annotated[int | None, typer.Option(help="Processes and threads.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE; can be repeated.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", help="NAME=VALUE; can be repeated.")
    ] = None,
    quote: Annotated[str | None, typer.Option(help="Id of a quote (`sandboxer quote`) to pay by.")] = None,
    snapshot: Annotated[str | None, typer.Option(help="Begin as a copy of this snapshot.")] = None,
    volume: VolumeOption = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Answer before it is ready.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Create a sandbox; without arguments a canary that reports on its host.

    Examples:

        sandboxer create

        sandboxer create --profile profile.agent-dev --ttl 2h --label team=search

        sandboxer create --volume data:/data --volume models:/models:ro

        ID=$(sandboxer create --profile profile.build --memory-mb 2048 --json | jq -r .id)
    """
    resources = {"vcpus": vcpus, "memory_mb": memory_mb, "disk_mb": disk_mb, "pids": pids}
    resources = {field: value for field, value in resources.items() if value is not None}
    wanted: dict[str, Any] = {"profile": profile, "name": name, "image": image, "trust": trust, "ttl": ttl}
    wanted |= {"idle_timeout": idle_timeout, "resources": resources or None}
    wanted |= {"env": pairs(env, "--env") or None, "labels": pairs(label, "--label") or None}
    wanted |= {"snapshot": snapshot, "volumes": mounts(volume) or None}
    is_canary = not any(wanted.values())
    wanted["quote_id"] = quote
    with client(url, state_dir) as platform:
        sandbox = platform.create(**(wanted | ({"profile": CANARY} if is_canary else {})), wait=not no_wait)
        report = host_report(sandbox) if is_canary and not no_wait else None
    if json:
        print_json(sandbox.info.model_dump(mode="json") | ({"report": report} if report else {}))
        return
    show_sandbox(sandbox.info)
    if report is not None:
        out.print(facts_table(_readable(report), title="\nWhat it sees of its host"))
    err.print(f"[dim]next:[/] sandboxer shell {sandbox.id}")


def host_report(sandbox: Sandbox) -> Mapping[str, Any]:
    """What the canary's own setup reported, or else what a look around from inside says."""
    if sandbox.info.report is not None:
        return sandbox.info.report
    result = sandbox.exec(["python3", "-c", LOOK_AROUND], timeout_s=30)
    try:
        found = jsons.loads(result.stdout)
    except ValueError:
        return {"problem": f"the canary said nothing useful (exit code {result.exit_code}): {result.stderr}"}
    return found if isinstance(found, dict) else {"report": found}


def _readable(report: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [(key.replace("_", " "), _words(value)) for key, value in report.items()]


def _words(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_words(part) for part in value)
    return str(value)
