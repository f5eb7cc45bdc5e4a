"""`wallets list|link|revoke|end-sessions`: the wallets of this account, its other factor beside its keys."""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.confirming import GivenProof, Wallet, WalletFile, with_wallet
from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, out, print_json

app = typer.Typer(help="Link, list and revoke wallets.", no_args_is_help=True, rich_markup_mode="rich")
groups = {"wallets": app}


@app.command("list")
def list_wallets(json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """List the wallets of this account.

    Examples:

        sandboxer wallets list
    """
    with client(url, state_dir) as platform:
        wallets = platform.wallets.list()
    if json:
        print_json(list(wallets))
        return
    rows = [
        (one.address, ago(one.created_at), f"revoked {ago(one.revoked_at)}" if one.revoked_at else "")
        for one in wallets
    ]
    out.print(columns(rows, "ADDRESS", "LINKED", ""))


@app.command("link")
def link_wallet(
    wallet: Wallet = None,
    proof: GivenProof = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Make a wallet the other factor of this account: it signs in, and confirms what is locked.

    Examples:

        sandboxer wallets link --wallet ~/.wallet.key
    """
    if wallet is None:
        raise CommandFailed("no wallet was named", next_step="Name the file of its key: --wallet FILE.")
    file = WalletFile(wallet)
    with client(url, state_dir, confirm=with_wallet(wallet, proof)) as platform:
        challenge = platform.wallets.challenge()
        linked = platform.wallets.link(challenge.nonce, file.address, file.sign(challenge.message))
    if json:
        print_json(linked)
    else:
        out.print(f"linked {linked.address}")


@app.command("revoke")
def revoke_wallet(
    address: Annotated[str, typer.Argument(help="As `wallets list` shows it (CAIP-10).")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Let a wallet sign in no more; its sessions end, and every key it cut.

    Examples:

        sandboxer wallets revoke eip155:1:0x…
    """
    with client(url, state_dir) as platform:
        platform.wallets.revoke(address)
    if json:
        print_json({"address": address, "revoked": True})
    else:
        out.print(f"revoked {address}")


@app.command("end-sessions")
def end_sessions(
    address: Annotated[str | None, typer.Argument(help="Only those of this wallet.")] = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """End every session of this account; wallets may sign in again.

    Examples:

        sandboxer wallets end-sessions
    """
    with client(url, state_dir) as platform:
        ended = platform.wallets.end_sessions(address)
    if json:
        print_json({"ended": ended})
    else:
        out.print(f"ended {ended} sessions")
