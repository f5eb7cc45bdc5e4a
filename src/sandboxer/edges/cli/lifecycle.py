"""What changes a sandbox: `boost`, `freeze`, `thaw`, `stop`, `resume`, `lock`, `update`, `delete`, …"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import SandboxId, pairs, whole_id
from sandboxer.edges.cli.output import state_text, until
from sandboxer.edges.cli.verbs import Answer, Row, each, rows, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.wire import sandboxes as wire

app = typer.Typer(rich_markup_mode="rich")

# Whoever wakes or rebuilds a large disk waits for it.
SLOW_S = 180.0
SandboxIds = Annotated[list[str], typer.Argument(help="Names or ids of sandboxes.", metavar="ID…")]
# Of what ends with a sandbox, so many are named to people.
_NAMED = 5


def _sandbox(platform: Sandboxer, given: dict[str, Any]) -> Sandbox:
    return platform.sandbox(given.pop("sandbox_id"))


def _changed(sandbox: wire.Sandbox) -> Answer:
    lasts = sandbox.expires_at is not None and sandbox.ended_at is None
    ends = f"[dim]expires {until(sandbox.expires_at)}[/]" if lasts else ""
    words = (sandbox.id, sandbox.name, state_text(sandbox.state), "locked" if sandbox.locked_at else "", ends)
    return Answer(sandbox, *(word for word in words if word))


def _ended(sandbox: wire.DestroyedSandbox) -> Answer:
    answer, made = _changed(sandbox), sandbox.made_inside
    if made is None:
        return answer
    more = "" if made.count <= _NAMED else f" and {made.count - _NAMED} more"
    which = f"{made.count} that it made: {', '.join(made.sandbox_ids[:_NAMED])}{more}"
    return Answer(sandbox, *answer.parts, f"[dim]{'with it end' if made.ends else 'it leaves'} {which}[/]")


rows(
    app,
    _sandbox,
    {"sandbox_id": SandboxId},
    _changed,
    Row(
        "freeze",
        Sandbox.freeze,
        "Pause every process in memory; files can still be read, the TTL goes on.",
        "freeze dev",
    ),
    Row(
        "thaw",
        Sandbox.thaw,
        "Let a frozen sandbox go on where it was.",
        "thaw dev",
    ),
    Row(
        "resume",
        Sandbox.resume,
        "Start a stopped sandbox again, on its own disk.",
        "resume dev",
    ),
    Row(
        "lock",
        Sandbox.lock,
        "Guard a sandbox by a second proof.\n\n"
        "Deleting, recreating and unlocking it then need the account's other factor as well, so it needs"
        " both an\nAPI key and a wallet (`sandboxer wallet link`). When its time is over, a locked sandbox"
        " is stopped and\nits disk kept.",
        "lock dev",
    ),
    Row(
        "unlock",
        Sandbox.unlock,
        "Take that guard away, with a second proof.",
        "unlock dev --wallet ~/.wallet.key",
        may_need_proof=True,
    ),
    Row(
        "recreate",
        Sandbox.recreate,
        "Give a sandbox a new disk from its image; the id stays, its files are lost.",
        "recreate dev",
        may_need_proof=True,
    ),
    timeout_s=SLOW_S,
)


@verb(app, "stop", timeout_s=SLOW_S)
def stop(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep what runs too; it goes on when it is resumed (gVisor).")
    ] = False,
) -> Answer:
    """End all processes, keep the disk.

    Examples:

        sandboxer stop dev

        sandboxer stop dev --memory
    """
    return _changed(platform.sandbox(sandbox_id).stop(memory=memory or None))


@verb(app, "update", timeout_s=SLOW_S)
def update(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    name: Annotated[str | None, typer.Option(help="Another name; its id stays.")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", help="NAME=VALUE sets one, NAME- takes it away; can be repeated."),
    ] = None,
    ttl: Annotated[str | None, typer.Option(help="How much longer it lives: 30s, 15m, 4h, 2d.")] = None,
    quote: Annotated[str | None, typer.Option(help="Id of a quote to pay by from now on.")] = None,
) -> Answer:
    """Name or label a sandbox anew, or let it live longer; its profile sets the longest whole life.

    Examples:

        sandboxer update dev --name nightly --label team=search --label draft-

        sandboxer update dev --ttl 2h
    """
    gone = [word[:-1] for word in label or [] if word.endswith("-") and "=" not in word]
    kept = [word for word in label or [] if "=" in word or not word.endswith("-")]
    labels = {**pairs(kept, "--label"), **dict.fromkeys(gone)}
    if ttl is None and (quote is not None or (name is None and not labels)):
        raise CommandFailed(
            f"{'nothing was asked to change' if quote is None else '--quote is the price of more time'}",
            next_step=f"Run: sandboxer update {sandbox_id} --ttl 1h",
        )
    sandbox = platform.sandbox(whole_id(platform, sandbox_id))
    # What may be refused comes first.
    changed = None if ttl is None else sandbox.extend_ttl(ttl, quote_id=quote)
    if name is not None or labels:
        changed = sandbox.change(name=name, labels=labels or None)
    return _changed(changed or sandbox.info)


@verb(app, "delete", may_need_proof=True, timeout_s=SLOW_S)
def delete(platform: Sandboxer, sandbox_ids: SandboxIds) -> Answer:
    """Remove sandboxes for good; one that is gone already is no error.

    Examples:

        sandboxer delete dev

        sandboxer delete dev sbx_4c3

        sandboxer delete dev --wallet ~/.wallet.key

        sandboxer list --json | jq -r '.items[].id' | xargs sandboxer delete
    """
    # All names are looked up before anything is gone: one that fits several, or nothing, removes nothing.
    whole = [whole_id(platform, word) for word in sandbox_ids]
    gone = [platform.sandbox(sandbox_id).destroy() for sandbox_id in whole]
    return each(_ended(one) for one in gone)


@verb(app, "boost")
def boost(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    vcpus: Annotated[int, typer.Argument(min=1, help="CPUs in all; each brings 2 GB of memory.")],
) -> object:
    """Give a sandbox more CPUs and memory at once.

    Examples:

        sandboxer boost dev 4
    """
    return platform.sessions.boost(sandbox_id, vcpus)


@verb(app, "unboost")
def unboost(platform: Sandboxer, sandbox_id: SandboxId) -> object:
    """Take back what a boost gave.

    Examples:

        sandboxer unboost dev
    """
    return platform.sessions.unboost(sandbox_id)
