"""`list`, `get`, `logs`: looking at sandboxes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from sandboxer.edges.cli.options import Json, SandboxId, StateDir, Url, client, pairs
from sandboxer.edges.cli.output import ago, columns, facts_table, out, print_json, state_text, until
from sandboxer.wire.events import Event
from sandboxer.wire.sandboxes import Sandbox

app = typer.Typer(rich_markup_mode="rich")


@app.command("list")
def list_sandboxes(
    state: Annotated[str | None, typer.Option(help="Only those in this state.")] = None,
    label: Annotated[list[str] | None, typer.Option("--label", "-l", help="Only with NAME=VALUE.")] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also destroyed ones.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """List sandboxes.

    Examples:

        sandboxer list

        sandboxer list --state ready --label team=search --json
    """
    with client(url, state_dir) as platform:
        found = list(platform.list(state=state, labels=pairs(label, "--label"), limit=500))
    shown = [one for one in found if all_ or state or one.state != "destroyed"]
    if json:
        print_json(shown)
        return
    rows = [
        (one.id, one.name or "", state_text(one.state), one.profile, ago(one.created_at), until(_end(one)))
        for one in shown
    ]
    out.print(columns(rows, "ID", "NAME", "STATE", "PROFILE", "CREATED", "EXPIRES"))
    if not rows:
        out.print("[dim]none; make one with[/] sandboxer create")


@app.command("get")
def get_sandbox(
    sandbox_id: SandboxId,
    usage: Annotated[bool, typer.Option("--usage", "-u", help="Also what it uses now.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Show one sandbox.

    Examples:

        sandboxer get sbx_0123456789abcdefghjkmnpqrs

        sandboxer get --usage --json sbx_0123456789abcdefghjkmnpqrs
    """
    with client(url, state_dir) as platform:
        sandbox = platform.get(sandbox_id)
        used = sandbox.usage() if usage else None
    if json:
        print_json(sandbox.info.model_dump(mode="json") | ({"usage": used.model_dump()} if used else {}))
        return
    show_sandbox(sandbox.info)
    if used:
        out.print(facts_table(used.model_dump(exclude={"sandbox_id"}).items(), title="\nUsage"))


@app.command("logs")
def logs(
    sandbox_id: SandboxId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as things happen.")] = False,
    after: Annotated[int, typer.Option(help="Only events after this id.")] = 0,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Show what happened to a sandbox: each step, who caused it, and why.

    Examples:

        sandboxer logs sbx_0123456789abcdefghjkmnpqrs

        sandboxer logs -f --json sbx_0123456789abcdefghjkmnpqrs
    """
    with client(url, state_dir) as platform:
        for event in platform.sandbox(sandbox_id).events(after=after, follow=follow):
            if json:
                print(event.model_dump_json(), flush=True)
            else:
                _print_event(event)


def _print_event(event: Event) -> None:
    when = event.at.strftime("%Y-%m-%d %H:%M:%S")
    word = event.kind.removeprefix("sandbox.")
    line = state_text(word)
    out.print(f"[dim]{event.id:>6} {when}[/]", line, f"[dim]by[/] {event.actor}", f"[dim]{event.reason}[/]")


def show_sandbox(sandbox: Sandbox) -> None:
    resources = sandbox.resources
    facts: list[tuple[str, object]] = [
        ("id", sandbox.id),
        ("name", sandbox.name),
        ("state", state_text(sandbox.state)),
        ("reason", sandbox.reason),
        ("profile", sandbox.profile),
        ("backend", sandbox.backend),
        ("image", sandbox.image),
        ("trust", sandbox.trust),
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
    out.print(facts_table(facts))


def _end(sandbox: Sandbox) -> datetime | None:
    return None if sandbox.ended_at else sandbox.expires_at
