"""`ssh SANDBOX [-- COMMAND…]`: the stock client, with a key made for this one run."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.access.ssh_config import known_name
from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import SandboxId, StateDir, Url, client
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.ssh import SshGateway

app = typer.Typer(rich_markup_mode="rich")
# Long enough for a day's work; revoked at the end anyway.
KEY_TTL = "24h"


@app.command("ssh", context_settings={"allow_interspersed_args": False})
def ssh(
    sandbox_id: SandboxId,
    command: Annotated[
        list[str] | None, typer.Argument(help="Run this instead of a shell.", metavar="COMMAND…")
    ] = None,
    identity: Annotated[
        Path | None,
        typer.Option("--identity", "-i", help="Your own private key, added before by `ssh-key add`."),
    ] = None,
    forward: Annotated[
        list[str] | None,
        typer.Option("--forward", "-L", help="As ssh -L: 8080:localhost:3000.", metavar="SPEC"),
    ] = None,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Open a shell in a sandbox, or run a command, with the stock ssh. Its exit code becomes ours.

    Without --identity a key is made for this one run and revoked at its end.

    Examples:

        sandboxer ssh sbx_0123456789abcdefghjkmnpqrs

        sandboxer ssh sbx_0123456789abcdefghjkmnpqrs -- uname -a

        sandboxer ssh -L 8080:localhost:3000 sbx_0123456789abcdefghjkmnpqrs
    """
    if shutil.which("ssh") is None:
        raise CommandFailed("there is no ssh here", next_step="Install openssh-client.")
    with client(url, state_dir) as platform, tempfile.TemporaryDirectory(prefix="sandboxer-ssh-") as folder:
        gateway = platform.ssh.gateway()
        key_id = None
        if identity is None:
            identity, key_id = _passing_key(platform, sandbox_id, Path(folder))
        try:
            words = ssh_words(gateway, sandbox_id, identity, Path(folder), forward or [])
            code = subprocess.run([*words, *(command or [])], check=False).returncode
        finally:
            if key_id is not None:
                platform.ssh.revoke_key(key_id)
    raise typer.Exit(code)


def ssh_words(
    gateway: SshGateway, sandbox_id: str, identity: Path, folder: Path, forwards: list[str]
) -> list[str]:
    """The host's key is known from the API: nobody is asked to trust a fingerprint."""
    known = folder / "known_hosts"
    known.write_text(f"{known_name(gateway)} {gateway.host_key}\n")
    options = {
        "UserKnownHostsFile": str(known),
        "StrictHostKeyChecking": "yes",
        "HostKeyAlgorithms": gateway.host_key.split()[0],
        "IdentitiesOnly": "yes",
        "ForwardAgent": "no",
        "LogLevel": "ERROR",
    }
    words = ["ssh", "-p", str(gateway.port), "-i", str(identity)]
    words += [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    words += [word for spec in forwards for word in ("-L", spec)]
    return [*words, f"{sandbox_id}@{gateway.host}"]


def _passing_key(platform: Sandboxer, sandbox_id: str, folder: Path) -> tuple[Path, str]:
    path = folder / "id_ed25519"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "sandboxer ssh", "-f", str(path)], check=True
    )
    public = path.with_suffix(".pub").read_text()
    return path, platform.ssh.add_key(public, sandbox_id=sandbox_id, ttl=KEY_TTL).id
