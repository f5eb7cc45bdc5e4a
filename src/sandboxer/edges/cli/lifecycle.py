"""What changes a sandbox: `boost`, `freeze`, `thaw`, `stop`, `resume`, `lock`, `extend-ttl`, `destroy`, …"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from sandboxer.edges.cli.options import (
    SandboxId,
)
from sandboxer.edges.cli.output import state_text, until
from sandboxer.edges.cli.verbs import Answer, each, step, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.wire import sandboxes as wire

app = typer.Typer(rich_markup_mode="rich")

# Whoever wakes or rebuilds a large disk waits for it.
SLOW_S = 180.0
SandboxIds = Annotated[list[str], typer.Argument(help="Ids of sandboxes.", metavar="ID…")]


def _change(change: Callable[[Sandbox], wire.Sandbox], platform: Sandboxer, sandbox_id: str) -> Answer:
    return _changed(change(platform.sandbox(sandbox_id)))


for name, change, words in (
    ("freeze", Sandbox.freeze, "Pause every process in memory; files can still be read, the TTL goes on."),
    ("thaw", Sandbox.thaw, "Let a frozen sandbox go on where it was."),
    ("stop", Sandbox.stop, "End all processes, keep the disk."),
    ("resume", Sandbox.resume, "Start a stopped sandbox again, on its own disk."),
):
    example = f"{name} sbx_0123456789abcdefghjkmnpqrs"
    step(app, name, SandboxId, partial(_change, change), words, example, timeout_s=SLOW_S)


@verb(app, "lock", timeout_s=SLOW_S)
def lock(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """Guard a sandbox by a second proof.

    Destroying, recreating and unlocking it then need the account's other factor as well, so it needs both an
    API key and a wallet (`sandboxer wallets link`). When its time is over, a locked sandbox is stopped and
    its disk kept.

    Examples:

        sandboxer lock sbx_0123456789abcdefghjkmnpqrs
    """
    return _changed(platform.sandbox(sandbox_id).lock())


@verb(app, "unlock", may_need_proof=True, timeout_s=SLOW_S)
def unlock(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """Take that guard away, with a second proof.

    Examples:

        sandboxer unlock sbx_0123456789abcdefghjkmnpqrs --wallet ~/.wallet.key
    """
    return _changed(platform.sandbox(sandbox_id).unlock())


@verb(app, "recreate", may_need_proof=True, timeout_s=SLOW_S)
def recreate(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """Give a sandbox a new disk from its image; the id stays, its files are lost.

    Examples:

        sandboxer recreate sbx_0123456789abcdefghjkmnpqrs
    """
    return _changed(platform.sandbox(sandbox_id).recreate())


@verb(app, "extend-ttl", timeout_s=SLOW_S)
def extend_ttl(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    duration: Annotated[str, typer.Argument(help="How much longer: 30s, 15m, 4h, 2d.")],
    quote: Annotated[str | None, typer.Option(help="Id of a quote to pay by from now on.")] = None,
) -> Answer:
    """Let a sandbox live longer; its profile sets the longest whole life.

    Examples:

        sandboxer extend-ttl sbx_0123456789abcdefghjkmnpqrs 2h
    """
    return _changed(platform.sandbox(sandbox_id).extend_ttl(duration, quote_id=quote))


@verb(app, "destroy", may_need_proof=True, timeout_s=SLOW_S)
def destroy(platform: Sandboxer, sandbox_ids: SandboxIds) -> Answer:
    """Remove sandboxes for good; one that is gone already is no error.

    Examples:

        sandboxer destroy sbx_0123456789abcdefghjkmnpqrs

        sandboxer destroy sbx_0123456789abcdefghjkmnpqrs --wallet ~/.wallet.key

        sandboxer list --json | jq -r '.[].id' | xargs sandboxer destroy
    """
    gone = [platform.sandbox(sandbox_id).destroy() for sandbox_id in sandbox_ids]
    return each(Answer(one, one.id, state_text(one.state)) for one in gone)


def _changed(sandbox: wire.Sandbox) -> Answer:
    ends = f"[dim]expires {until(sandbox.expires_at)}[/]" if sandbox.expires_at else ""
    locked = "locked" if sandbox.locked_at else ""
    return Answer(sandbox, *(word for word in (sandbox.id, state_text(sandbox.state), locked, ends) if word))


@verb(app, "boost")
def boost(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    vcpus: Annotated[int, typer.Argument(min=1, help="CPUs in all; each brings 2 GB of memory.")],
) -> object:
    """Give a sandbox more CPUs and memory at once.

    Examples:

        sandboxer boost sbx_0123456789abcdefghjkmnpqrs 4
    """
    return platform.sessions.boost(sandbox_id, vcpus)


@verb(app, "unboost")
def unboost(platform: Sandboxer, sandbox_id: SandboxId) -> object:
    """Take back what a boost gave.

    Examples:

        sandboxer unboost sbx_0123456789abcdefghjkmnpqrs
    """
    return platform.sessions.unboost(sandbox_id)
