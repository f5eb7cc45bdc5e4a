"""What changes a sandbox: `boost`, `freeze`, `thaw`, `stop`, `resume`, `lock`, `extend-ttl`, `destroy`, …"""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.options import (
    GivenProof,
    Json,
    SandboxId,
    StateDir,
    Url,
    Wallet,
    client,
    with_wallet,
)
from sandboxer.edges.cli.output import out, print_json, state_text, until
from sandboxer.edges.cli.verbs import Answer, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire import sandboxes as wire

app = typer.Typer(rich_markup_mode="rich")

# Whoever wakes or rebuilds a large disk waits for it.
SLOW_S = 180.0
SandboxIds = Annotated[list[str], typer.Argument(help="Ids of sandboxes.", metavar="ID…")]


@verb(app, "freeze", timeout_s=SLOW_S)
def freeze(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """Pause every process in memory; files can still be read, the TTL goes on.

    Examples:

        sandboxer freeze sbx_0123456789abcdefghjkmnpqrs
    """
    return _changed(platform.sandbox(sandbox_id).freeze())


@verb(app, "thaw", timeout_s=SLOW_S)
def thaw(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """Let a frozen sandbox go on where it was.

    Examples:

        sandboxer thaw sbx_0123456789abcdefghjkmnpqrs
    """
    return _changed(platform.sandbox(sandbox_id).thaw())


@verb(app, "stop", timeout_s=SLOW_S)
def stop(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """End all processes, keep the disk.

    Examples:

        sandboxer stop sbx_0123456789abcdefghjkmnpqrs
    """
    return _changed(platform.sandbox(sandbox_id).stop())


@verb(app, "resume", timeout_s=SLOW_S)
def resume(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """Start a stopped sandbox again, on its own disk.

    Examples:

        sandboxer resume sbx_0123456789abcdefghjkmnpqrs
    """
    return _changed(platform.sandbox(sandbox_id).resume())


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


@app.command("destroy")
def destroy(
    sandbox_ids: SandboxIds,
    wallet: Wallet = None,
    proof: GivenProof = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Remove sandboxes for good; one that is gone already is no error.

    Examples:

        sandboxer destroy sbx_0123456789abcdefghjkmnpqrs

        sandboxer destroy sbx_0123456789abcdefghjkmnpqrs --wallet ~/.wallet.key

        sandboxer list --json | jq -r '.[].id' | xargs sandboxer destroy
    """
    with client(url, state_dir, timeout_s=180.0, confirm=with_wallet(wallet, proof)) as platform:
        gone = [platform.sandbox(sandbox_id).destroy() for sandbox_id in sandbox_ids]
    if json:
        print_json(gone if len(gone) > 1 else gone[0])
        return
    for sandbox in gone:
        out.print(sandbox.id, state_text(sandbox.state))


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
