"""`ssh-config SANDBOX`: what goes into ~/.ssh/config, for editors, git and short words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json, SandboxId, StateDir, Url, client
from sandboxer.edges.cli.output import err, print_json
from sandboxer.wire.ssh import SshGateway

app = typer.Typer(rich_markup_mode="rich")
KNOWN_HOSTS = Path("~/.ssh/sandboxer_known_hosts")


@app.command("ssh-config")
def ssh_config(
    sandbox_id: SandboxId,
    name: Annotated[str, typer.Option(help="What ssh, git and editors shall call it.")] = "box",
    identity: Annotated[
        Path | None, typer.Option("--identity", "-i", help="Your private key, if not the usual one.")
    ] = None,
    known_hosts: Annotated[
        Path, typer.Option(help="Where the gateway's host key is written down.", metavar="FILE")
    ] = KNOWN_HOSTS,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Print a block for ~/.ssh/config, and write down the gateway's host key beside it.

    The key comes by the signed API, so that nobody is asked to trust a fingerprint; run it again when the
    gateway has a new one. Your own key is added by `ssh-key add`.

    Examples:

        sandboxer ssh-config sbx_0123456789abcdefghjkmnpqrs >> ~/.ssh/config

        sandboxer ssh-config sbx_0123456789abcdefghjkmnpqrs --name web -i ~/.ssh/id_ed25519
    """
    if not name or any(sign in name for sign in " \t\n*?!,\"'"):
        raise CommandFailed(f"{name!r} cannot be a name", next_step="Take one word without wildcards.")
    with client(url, state_dir) as platform:
        platform.get(sandbox_id)
        gateway = platform.ssh.gateway()
    file = known_hosts.expanduser()
    note_host(gateway, file)
    block = config_block(gateway, sandbox_id, name, identity, file)
    if json:
        print_json({"name": name, "config": block, "known_hosts": str(file), "host_key": gateway.host_key})
        return
    typer.echo(block)
    err.print(f"[dim]the host key is in {file}[/]", soft_wrap=True)


def known_name(gateway: SshGateway) -> str:
    """As known_hosts spells it."""
    return gateway.host if gateway.port == 22 else f"[{gateway.host}]:{gateway.port}"


def note_host(gateway: SshGateway, file: Path) -> None:
    """One line for this gateway, in place of an older one; others' lines stay."""
    mine = known_name(gateway)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = file.read_text().splitlines() if file.exists() else []
        others = [line for line in before if line.split(" ", 1)[0] != mine]
        beside = file.with_name(f"{file.name}.{os.getpid()}")
        beside.write_text("\n".join([*others, f"{mine} {gateway.host_key}"]) + "\n")
        beside.chmod(0o600)
        beside.replace(file)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{file} cannot be written: {error}", next_step="Name another.") from None


def config_block(
    gateway: SshGateway, sandbox_id: str, name: str, identity: Path | None, known_hosts: Path
) -> str:
    lines = [
        f"Host {name}",
        f"HostName {gateway.host}",
        f"Port {gateway.port}",
        f"User {sandbox_id}",
        f'UserKnownHostsFile "{known_hosts}"',
        "StrictHostKeyChecking yes",
        f"HostKeyAlgorithms {gateway.host_key.split()[0]}",
        "ForwardAgent no",
        "ServerAliveInterval 30",
    ]
    if identity is not None:
        lines += [f'IdentityFile "{identity.expanduser().absolute()}"', "IdentitiesOnly yes"]
    return "\n    ".join(lines)
