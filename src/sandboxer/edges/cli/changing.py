"""`freeze`, `thaw`, `stop`, `resume`, `recreate`, `lock`, `unlock`, `extend-ttl`, `destroy`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.confirming import GivenProof, Wallet, with_wallet
from sandboxer.edges.cli.options import Json, SandboxId, StateDir, Url, client
from sandboxer.edges.cli.output import out, print_json, state_text, until
from sandboxer.sdk.confirming import Confirmer
from sandboxer.sdk.signing import Credentials
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.wire import sandboxes as wire

app = typer.Typer(rich_markup_mode="rich")

SandboxIds = Annotated[list[str], typer.Argument(help="Ids of sandboxes.", metavar="ID…")]


@app.command("freeze")
def freeze(sandbox_id: SandboxId, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Pause every process in memory; files can still be read, the TTL goes on.

    Examples:

        sandboxer freeze sbx_0123456789abcdefghjkmnpqrs
    """
    _change(sandbox_id, Sandbox.freeze, json, url, state_dir)


@app.command("thaw")
def thaw(sandbox_id: SandboxId, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Let a frozen sandbox go on where it was.

    Examples:

        sandboxer thaw sbx_0123456789abcdefghjkmnpqrs
    """
    _change(sandbox_id, Sandbox.thaw, json, url, state_dir)


@app.command("stop")
def stop(sandbox_id: SandboxId, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """End all processes, keep the disk.

    Examples:

        sandboxer stop sbx_0123456789abcdefghjkmnpqrs
    """
    _change(sandbox_id, Sandbox.stop, json, url, state_dir)


@app.command("resume")
def resume(sandbox_id: SandboxId, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Start a stopped sandbox again, on its own disk.

    Examples:

        sandboxer resume sbx_0123456789abcdefghjkmnpqrs
    """
    _change(sandbox_id, Sandbox.resume, json, url, state_dir)


@app.command("lock")
def lock(sandbox_id: SandboxId, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Guard a sandbox by a second proof.

    Destroying, recreating and unlocking it then need the account's other factor as well, so it needs both an
    API key and a wallet (`sandboxer wallets link`). When its time is over, a locked sandbox is stopped and
    its disk kept.

    Examples:

        sandboxer lock sbx_0123456789abcdefghjkmnpqrs
    """
    _change(sandbox_id, Sandbox.lock, json, url, state_dir)


@app.command("unlock")
def unlock(
    sandbox_id: SandboxId,
    wallet: Wallet = None,
    proof: GivenProof = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Take that guard away, with a second proof.

    Examples:

        sandboxer unlock sbx_0123456789abcdefghjkmnpqrs --wallet ~/.wallet.key
    """
    _change(sandbox_id, Sandbox.unlock, json, url, state_dir, with_wallet(wallet, proof))


@app.command("recreate")
def recreate(
    sandbox_id: SandboxId,
    wallet: Wallet = None,
    proof: GivenProof = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Give a sandbox a new disk from its image; the id stays, its files are lost.

    Examples:

        sandboxer recreate sbx_0123456789abcdefghjkmnpqrs
    """
    _change(sandbox_id, Sandbox.recreate, json, url, state_dir, with_wallet(wallet, proof))


@app.command("extend-ttl")
def extend_ttl(
    sandbox_id: SandboxId,
    duration: Annotated[str, typer.Argument(help="How much longer: 30s, 15m, 4h, 2d.")],
    quote: Annotated[str | None, typer.Option(help="Id of a quote to pay by from now on.")] = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Let a sandbox live longer; its profile sets the longest whole life.

    Examples:

        sandboxer extend-ttl sbx_0123456789abcdefghjkmnpqrs 2h
    """
    _change(sandbox_id, lambda sandbox: sandbox.extend_ttl(duration, quote_id=quote), json, url, state_dir)


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


def _change(
    sandbox_id: str,
    act: Callable[[Sandbox], wire.Sandbox],
    json: bool,
    url: str | None,
    state_dir: Path | None,
    confirm: Callable[[Credentials], Confirmer] | None = None,
) -> None:
    with client(url, state_dir, timeout_s=180.0, confirm=confirm) as platform:
        sandbox = act(platform.sandbox(sandbox_id))
    if json:
        print_json(sandbox)
        return
    ends = f"[dim]expires {until(sandbox.expires_at)}[/]" if sandbox.expires_at else ""
    locked = "locked" if sandbox.locked_at else ""
    out.print(*(word for word in (sandbox.id, state_text(sandbox.state), locked, ends) if word))
