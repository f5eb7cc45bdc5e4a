"""Sandboxes, made and looked at: `create`, `list`, `show`, `events`, …

`canary` makes one that looks around and reports on its host.
"""

from __future__ import annotations

import json as jsons
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import (
    ActorOption,
    Cpus,
    Disk,
    HostOption,
    InputOption,
    InState,
    IsolationOption,
    Json,
    Memory,
    NetworkOption,
    ProjectOption,
    SandboxId,
    ScopeOption,
    VolumeOption,
    WorkspaceOption,
    mounts,
    pairs,
)
from sandboxer.edges.cli.output import (
    NETWORKS,
    ago,
    columns,
    facts_table,
    out,
    plain,
    resource,
    state_text,
    until,
)
from sandboxer.edges.cli.repository import Brought, contents
from sandboxer.edges.cli.verbs import Answer, show_pieces, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox as SandboxHandle
from sandboxer.wire.sandboxes import Event, Sandbox, TreeEntry

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
# Reasons of a state that nobody asks for.
_AS_EXPECTED = frozenset({"requested", "placed", "probe_passed", "claimed_warm"})
app = typer.Typer(rich_markup_mode="rich")


@verb(app, "create")
def create(
    platform: Sandboxer,
    profile: Annotated[str | None, typer.Option(help="Recipe, as in `profile.agent-dev`.")] = None,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    image: Annotated[str | None, typer.Option(help="Base image.")] = None,
    network: NetworkOption = None,
    isolation: IsolationOption = None,
    ttl: Annotated[str | None, typer.Option(help="Life, counted from ready: 30s, 15m, 4h, 2d.")] = None,
    idle_timeout: Annotated[str | None, typer.Option(help="End after so long without work.")] = None,
    vcpus: Cpus = None,
    memory_mb: Memory = None,
    disk_mb: Disk = None,
    pids: Annotated[int | None, typer.Option(help="Processes and threads.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE; can be repeated.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", help="NAME=VALUE; can be repeated.")
    ] = None,
    quote: Annotated[str | None, typer.Option(help="Id of a quote (`sandboxer quote`) to pay by.")] = None,
    snapshot: Annotated[str | None, typer.Option(help="Begin as a copy of this snapshot.")] = None,
    volume: VolumeOption = None,
    inception: Annotated[
        str | None,
        typer.Option(
            metavar="BOUNDS",
            help="Let programs in it make sandboxes: slots=3,budget=500,depth=1,adopt (any of them).",
        ),
    ] = None,
    input_: InputOption = None,
    actor: ActorOption = None,
    project: ProjectOption = None,
    host: HostOption = None,
    workspace: WorkspaceOption = None,
    scope: ScopeOption = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Answer before it is ready.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the id alone.")] = False,
) -> Answer:
    """Create a sandbox, of the platform's default profile unless another is named.

    Examples:

        sandboxer create

        sandboxer create --profile profile.agent-dev --ttl 2h --label team=search

        sandboxer create --network packages --isolation strong

        sandboxer create --volume data:/data --volume models:/models:ro

        ID=$(sandboxer create -q --profile profile.build --memory 2g)

        sandboxer create --inception slots=3,budget=500

        sandboxer create --input repo=. --actor agt --project inventor
    """
    sizes = {"vcpus": vcpus, "memory_mb": memory_mb, "disk_mb": disk_mb, "pids": pids}
    resources = {field: value for field, value in sizes.items() if value is not None}
    wanted: dict[str, Any] = {"profile": profile, "name": name, "image": image, "network": network}
    wanted |= {"ttl": ttl, "idle_timeout": idle_timeout, "resources": resources or None}
    wanted |= {"env": pairs(env, "--env") or None, "labels": pairs(label, "--label") or None}
    wanted |= {"snapshot": snapshot, "volumes": mounts(volume) or None}
    wanted |= {"inception": None if inception is None else _bounds(inception)}
    inputs, brought = _inputs(input_, workspace, no_wait=no_wait)
    wanted |= {"inputs": inputs or None, "scope": scope, "consumer": _given(actor=actor, project=project)}
    wanted |= {"workspace": _given(access=workspace), "placement": _given(prefer=host and [host])}
    sandbox = platform.create(**wanted, isolation=isolation, quote_id=quote, wait=not no_wait)
    if brought is not None:
        brought.into(sandbox, "/workspace")
    if quiet:
        return Answer(sandbox.info, sandbox.id)
    return Answer(sandbox.info, _facts(sandbox.info), note=_next(sandbox.info))


def _given(**values: object) -> dict[str, object] | None:
    """Returns those that were said; None if nothing was."""
    return {name: value for name, value in values.items() if value} or None


def _inputs(
    words: list[str] | None, workspace: str | None, *, no_wait: bool
) -> tuple[dict[str, str], Brought | None]:
    """Reads the inputs; a repository that is a folder of this machine is copied and not named."""
    inputs = pairs(words, "--input")
    folder = Path(inputs.get("repo", ""))
    if "repo" not in inputs or "://" in inputs["repo"] or not folder.is_dir():
        return inputs, None
    if no_wait or workspace in ("ro", "none"):
        reason = (
            "--no-wait answers before it could be"
            if no_wait
            else f"a workspace that is {workspace} takes none"
        )
        raise CommandFailed(
            f"{folder} is a folder of this machine, copied once the sandbox is ready; {reason}",
            next_step="Leave that option out, or name a repository by its URL, which is cloned before.",
        )
    named = {name: value for name, value in inputs.items() if name != "repo"}
    return named, Brought(folder, contents(folder))


_BOUNDS = {"budget": "budget_sats", "depth": "depth", "slots": "slots"}


def _bounds(text: str) -> dict[str, object]:
    """Reads `slots=3,budget=500,depth=1,adopt`."""
    bounds: dict[str, object] = {}
    for word in filter(None, (one.strip() for one in text.split(","))):
        name, _, number = word.partition("=")
        if word in ("adopt", "end"):
            bounds["on_parent_end"] = word
        elif name in _BOUNDS and number.isdigit():
            bounds[_BOUNDS[name]] = int(number)
        else:
            raise typer.BadParameter(
                f"{word!r} is none of slots=N, budget=SATS, depth=N, adopt, end", param_hint="--inception"
            )
    return bounds


@verb(app, "canary")
def canary(
    platform: Sandboxer,
    ttl: Annotated[str | None, typer.Option(help="Life, counted from ready: 30s, 15m, 4h, 2d.")] = None,
) -> Answer:
    """Create a self-test sandbox, which reports on its host.

    Examples:

        sandboxer canary --json
    """
    sandbox = platform.create(profile=CANARY, ttl=ttl)
    report = host_report(sandbox)
    seen = facts_table(_readable(report), title="\nWhat it sees of its host")
    value = sandbox.info.model_dump(mode="json") | {"report": report}
    return Answer(value, _facts(sandbox.info), seen, note=_next(sandbox.info))


def _next(sandbox: Sandbox) -> str:
    return f"[dim]next:[/] sandboxer shell {shlex.quote(sandbox.name or sandbox.id)}"


def host_report(sandbox: SandboxHandle) -> Mapping[str, Any]:
    """What the canary's own setup reported, or else what a look around from inside says."""
    if sandbox.info.report is not None:
        return sandbox.info.report
    result = sandbox.exec(["python3", "-c", LOOK_AROUND], timeout_s=30)
    try:
        found = jsons.loads(result.stdout)
    except ValueError:
        return {
            "problem": f"the self-test said nothing useful (exit code {result.exit_code}): {result.stderr}"
        }
    return found if isinstance(found, dict) else {"report": found}


def _readable(report: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [(key.replace("_", " "), _words(value)) for key, value in report.items()]


def _words(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_words(part) for part in value)
    return str(value)


@verb(app, "list")
def list_sandboxes(
    platform: Sandboxer,
    state: InState = None,
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="Only with NAME=VALUE.")] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also destroyed ones.")] = False,
) -> Answer:
    """List sandboxes.

    Examples:

        sandboxer list

        sandboxer list --state ready --label team=search --json
    """
    found = platform.list(state=state, labels=pairs(label, "--label"), limit=500)
    shown = [one for one in found if all_ or state or one.state != "destroyed"]
    rows = [
        (
            one.id,
            one.name or "",
            state_text(one.state),
            _short(one.profile),
            ago(one.created_at),
            until(_end(one)),
        )
        for one in shown
    ]
    table = columns(rows, "ID", "NAME", "STATE", "PROFILE", "CREATED", "EXPIRES")
    return Answer(shown, table, make="create")


@verb(app, "tree")
def tree(
    platform: Sandboxer,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Draw it anew until Ctrl-C; with --json, a line for each change."),
    ] = False,
    json: Json = False,
) -> Answer | None:
    """Show sandboxes, those that they made from inside, and what was spent below each.

    Examples:

        sandboxer tree

        sandboxer tree --watch
    """
    if watch:
        if not (json or out.is_terminal):
            raise CommandFailed("--watch draws on a terminal", next_step="Run: sandboxer tree --watch --json")
        with suppress(KeyboardInterrupt):
            _tell_changes(platform) if json else _watch(platform)
        return None
    found = platform.tree()
    rows = [("  " * one.depth + one.id, one.name or "", *_standing(one)) for one in found]
    return Answer(found, columns(rows, "ID", "NAME", *_STANDING), make="create")


_STANDING = ("STATE", "DEPTH", "SPENT", "LEFT")
# Of the id of one without a name; enough for other commands, too.
_SHORT_ID = 12
# Nothing tells what is spent but asking; often enough for people, and a quarter of what a key may ask.
_REDRAWN_S = 2.0


def _standing(one: TreeEntry) -> tuple[object, ...]:
    sats = ("" if value is None else str(value) for value in (one.spent_sats, one.left_sats))
    return (state_text(one.state), str(one.depth), *sats)


def _watch(platform: Sandboxer) -> None:
    """Redraws in place; what stands there last stays on the screen."""
    with Live(console=out, auto_refresh=False) as drawn:
        while True:
            found = platform.tree()
            rows = [("  " * one.depth + (one.name or one.id[:_SHORT_ID]), *_standing(one)) for one in found]
            drawn.update(columns(rows, "SANDBOX", *_STANDING), refresh=True)
            time.sleep(_REDRAWN_S)


def _tell_changes(platform: Sandboxer) -> None:
    """Prints the tree as it is, and again whenever it is another: a document each, on a line of its own."""
    told = None
    while True:
        if (found := resource(platform.tree())) != told:
            print(jsons.dumps(told := found), flush=True)
        time.sleep(_REDRAWN_S)


@verb(app, "show")
def get_sandbox(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    usage: Annotated[bool, typer.Option("--usage", "-u", help="Also what it uses now.")] = False,
) -> Answer:
    """Show one sandbox.

    Examples:

        sandboxer show dev

        sandboxer show --usage --json dev
    """
    sandbox = platform.get(sandbox_id)
    if not usage:
        return Answer(sandbox.info, _facts(sandbox.info))
    used = sandbox.usage()
    value = sandbox.info.model_dump(mode="json") | {"usage": used.model_dump()}
    table = facts_table(used.model_dump(exclude={"sandbox_id"}).items(), title="\nUsage")
    return Answer(value, _facts(sandbox.info), table)


@verb(app, "events")
def logs(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen.")] = False,
    after: Annotated[int, typer.Option(help="Only events after this id.")] = 0,
    json: Json = False,
) -> None:
    """Show what happened to a sandbox: each step, who caused it, and why.

    Examples:

        sandboxer events dev

        sandboxer events -f --json dev
    """
    found = platform.sandbox(sandbox_id).events(after=after, follow=follow)
    show_pieces(found, _print_event, is_json=json, is_endless=follow)


def _print_event(event: Event) -> None:
    when = event.at.strftime("%m-%d %H:%M:%S")
    word = event.kind.removeprefix("sandbox.")
    why = "" if event.reason == word else f"{event.reason.replace('_', ' ')} "
    line = Text.assemble((f"{event.id:>6} {when} ", "dim"), state_text(word), f" {why}", ("by ", "dim"))
    # The key stands last: where there is little room, the end of it is what is cut.
    out.print(line + plain(event.actor), no_wrap=True, overflow="ellipsis")


def _facts(sandbox: Sandbox) -> Table:
    resources = sandbox.resources
    facts: list[tuple[str, object]] = [
        ("id", sandbox.id),
        ("name", sandbox.name),
        ("state", state_text(sandbox.state)),
        ("reason", None if sandbox.reason in _AS_EXPECTED else (sandbox.reason or "").replace("_", " ")),
        ("profile", sandbox.profile),
        ("backend", sandbox.backend),
        ("image", sandbox.image),
        ("network", sandbox.network or NETWORKS[sandbox.trust]),
        (
            "resources",
            f"{resources.vcpus:g} cpu, {resources.memory_mb} MB memory, {resources.disk_mb} MB disk, "
            f"{resources.pids} processes",
        ),
        ("labels", ", ".join(f"{name}={value}" for name, value in sandbox.labels.items())),
        ("created", ago(sandbox.created_at)),
        ("expires", until(_end(sandbox))),
        ("made in", ", ".join(f"{step} {took:.1f} ms" for step, took in sandbox.timings_ms.items())),
    ]
    return facts_table(facts)


def _short(profile: str) -> str:
    """A profile's name as every verb takes it, which leaves room for the sandbox's."""
    return profile.removeprefix("profile.")


def _end(sandbox: Sandbox) -> datetime | None:
    return None if sandbox.ended_at else sandbox.expires_at


@verb(app, "reachability")
def reachability(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """Show by which ways a sandbox can be reached.

    Examples:

        sandboxer reachability dev
    """
    found = platform.sandbox(sandbox_id).reachability()
    ways = f"sandboxer exec {sandbox_id} -- COMMAND, sandboxer cp, sandboxer shell {sandbox_id}"
    facts = [
        ("id", found.sandbox_id),
        ("state", state_text(found.state)),
        ("reachable", "yes" if found.reachable else f"no: {found.reason}"),
        ("answers in", None if found.latency_ms is None else f"{found.latency_ms:.1f} ms"),
        ("ways", ways if found.reachable else None),
        ("ssh", found.ssh),
        ("remote folder", found.remote_dir),
        ("ports", f"sandboxer preview create {sandbox_id} PORT" if found.reachable else None),
        ("what happens", f"sandboxer events {sandbox_id}"),
        ("for programs", "the addresses of all of these: --json"),
    ]
    return Answer(found, facts_table(facts))
