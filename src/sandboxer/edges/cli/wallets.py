"""`wallets list|link|revoke|end-sessions|sign-in|…`: the wallets of this account, its other factor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import (
    GivenProof,
    Json,
    StateDir,
    Url,
    Wallet,
    WalletFile,
    client,
    with_wallet,
)
from sandboxer.edges.cli.output import ago, columns, out, print_json
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.sdk.sync.client import Sandboxer

app = group("Link, list and revoke wallets.")
groups = {"wallets": app}


@verb(app, "list")
def list_wallets(platform: Sandboxer) -> Answer:
    """List the wallets of this account.

    Examples:

        sandboxer wallets list
    """
    wallets = platform.wallets.list()
    rows = [
        (one.address, ago(one.created_at), f"revoked {ago(one.revoked_at)}" if one.revoked_at else "")
        for one in wallets
    ]
    return Answer(list(wallets), columns(rows, "ADDRESS", "LINKED", ""))


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
    file = _file(wallet)
    with client(url, state_dir, confirm=with_wallet(wallet, proof)) as platform:
        challenge = platform.wallets.challenge()
        linked = platform.wallets.link(challenge.nonce, file.address, file.sign(challenge.message))
    if json:
        print_json(linked)
    else:
        out.print(f"linked {linked.address}")


@verb(app, "revoke")
def revoke_wallet(
    platform: Sandboxer, address: Annotated[str, typer.Argument(help="As `wallets list` shows it (CAIP-10).")]
) -> Answer:
    """Let a wallet sign in no more; its sessions end, and every key it cut.

    Examples:

        sandboxer wallets revoke eip155:1:0x…
    """
    platform.wallets.revoke(address)
    return Answer({"address": address, "revoked": True}, f"revoked {address}")


@verb(app, "end-sessions")
def end_sessions(
    platform: Sandboxer,
    address: Annotated[str | None, typer.Argument(help="Only those of this wallet.")] = None,
) -> Answer:
    """End every session of this account; wallets may sign in again.

    Examples:

        sandboxer wallets end-sessions
    """
    ended = platform.wallets.end_sessions(address)
    return Answer({"ended": ended}, f"ended {ended} sessions")


@verb(app, "sign-in")
def sign_in(platform: Sandboxer, wallet: Wallet = None) -> object:
    """Open a session of a wallet; its token signs requests as `Authorization: Bearer …`.

    Examples:

        sandboxer wallets sign-in --wallet ~/.wallet.key
    """
    file = _file(wallet)
    return platform.wallets.sign_in(file.sign, address=file.address)


@verb(app, "offer")
def offer(platform: Sandboxer) -> object:
    """Show what to complete and sign for Sign-in-with-X (CAIP-122).

    Examples:

        sandboxer wallets offer --json
    """
    return platform.wallets.offer()


@verb(app, "sign-in-with-x")
def sign_in_with_x(
    platform: Sandboxer,
    message: Annotated[Path, typer.Argument(help="File with the signed text.", metavar="FILE")],
    signature: Annotated[str, typer.Argument(help="As the wallet gives it.")],
) -> object:
    """Open a session by a completed and signed offer.

    Examples:

        sandboxer wallets sign-in-with-x message.txt 0x…
    """
    return platform.wallets.sign_in_with_x(message.read_text(), signature)


@verb(app, "sign-out")
def sign_out(
    platform: Sandboxer, token: Annotated[str, typer.Argument(help="Of the session.", metavar="TOKEN")]
) -> object:
    """End the session of a token.

    Examples:

        sandboxer wallets sign-out TOKEN
    """
    platform.wallets.sign_out(token)
    return {"signed_out": True}


@verb(app, "genesis")
def genesis(platform: Sandboxer) -> object:
    """Show what a Bitcoin and a Stacks wallet sign to pass the genesis gate.

    Examples:

        sandboxer wallets genesis --json
    """
    return platform.wallets.challenge_genesis()


def _file(wallet: Path | None) -> WalletFile:
    if wallet is None:
        raise CommandFailed("no wallet was named", next_step="Name the file of its key: --wallet FILE.")
    return WalletFile(wallet)
