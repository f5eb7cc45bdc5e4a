"""`ssh SANDBOX [-- COMMAND…]`: the stock client, with a key made for this one run.

`ssh-config SANDBOX`: what goes into ~/.ssh/config, for editors, git and short words.

`ssh-key create|list|delete`: public keys that open sandboxes by SSH.

`preview create|list|delete`: addresses that open a port inside a sandbox.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.options import (
    DespiteFindings,
    Json,
    SandboxId,
    StateDir,
    Url,
    client,
    inspecting,
    whole_id,
)
from sandboxer.edges.cli.output import ago, columns, err, plain, print_json, tell_exposure, until
from sandboxer.edges.cli.verbs import Answer, gone, group, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.ssh import SshGateway

# Long enough for a day's work; revoked at the end anyway.
KEY_TTL = "24h"
KNOWN_HOSTS = Path("~/.ssh/sandboxer_known_hosts")
app = typer.Typer(rich_markup_mode="rich")
keys = group("Keys that open sandboxes by SSH.")
previews = group("Open a port inside a sandbox by a link.")
groups = {"ssh-key": keys, "preview": previews}


@app.command("ssh", context_settings={"allow_interspersed_args": False})
def ssh(
    sandbox_id: SandboxId,
    command: Annotated[
        list[str] | None, typer.Argument(help="Run this instead of a shell.", metavar="COMMAND…")
    ] = None,
    identity: Annotated[
        Path | None,
        typer.Option("--identity", "-i", help="Your own private key, added before by `ssh-key create`."),
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

        sandboxer ssh dev

        sandboxer ssh dev -- sh -c 'exit 9'

        sandboxer ssh dev -- 'ls *.py | wc -l'

        sandboxer ssh -L 8080:localhost:3000 dev
    """
    if shutil.which("ssh") is None:
        raise CommandFailed("there is no ssh here", next_step="Install openssh-client.")
    with client(url, state_dir) as platform, tempfile.TemporaryDirectory(prefix="sandboxer-ssh-") as folder:
        sandbox_id = whole_id(platform, sandbox_id)
        gateway = platform.ssh.gateway()
        key_id = None
        if identity is None:
            identity, key_id = _passing_key(platform, sandbox_id, Path(folder))
        try:
            words = ssh_words(gateway, sandbox_id, identity, Path(folder), forward or [])
            code = subprocess.run([*words, *_quoted(command or [])], check=False).returncode
        finally:
            if key_id is not None:
                platform.ssh.revoke_key(key_id)
    raise typer.Exit(code)


def _quoted(command: list[str]) -> list[str]:
    """One word is text for the shell inside, as with ssh. Several are a program and its words: ssh would put
    blanks between them and let the shell inside take them apart elsewhere.
    """
    words = command[1:] if command[:1] == ["--"] else command
    # Behind `--`, or ssh would take a word that begins with a dash for an option of its own.
    return ["--", words[0] if len(words) == 1 else shlex.join(words)] if words else []


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
    gateway has a new one. Your own key is added by `ssh-key create`.

    Examples:

        sandboxer ssh-config dev >> ~/.ssh/config

        sandboxer ssh-config dev --name web -i ~/.ssh/id_ed25519
    """
    if not name or any(sign in name for sign in " \t\n*?!,\"'"):
        raise CommandFailed(f"{name!r} cannot be a name", next_step="Take one word without wildcards.")
    with client(url, state_dir) as platform:
        sandbox_id = platform.get(sandbox_id).id
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
    """Spells a host as known_hosts does."""
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


@verb(keys, "create")
def add_key(
    platform: Sandboxer,
    file: Annotated[Path, typer.Argument(help="A public key file; - for stdin.", metavar="FILE.pub")],
    name: Annotated[str | None, typer.Option(help="What to call it.")] = None,
    sandbox: Annotated[
        str | None, typer.Option(help="The one sandbox it opens; all of the account's without it.")
    ] = None,
    ttl: Annotated[str | None, typer.Option(help="How long it works: 1h, 30d.")] = None,
) -> Answer:
    """Let a public key open sandboxes.

    Examples:

        sandboxer ssh-key create ~/.ssh/id_ed25519.pub

        sandboxer ssh-key create ~/.ssh/id_ed25519.pub --sandbox dev --ttl 8h
    """
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{file} cannot be read: {error}", next_step="Name a .pub file.") from None
    made = platform.ssh.add_key(text, name=name, sandbox_id=sandbox, ttl=ttl)
    opens = f"[dim]opens {made.sandbox_id or 'every sandbox of the account'}[/]"
    return Answer(made, f"{made.id}  {made.fingerprint}", opens, sep="\n", soft_wrap=True)


@verb(keys, "list")
def list_keys(platform: Sandboxer) -> Answer:
    """List the keys that open sandboxes.

    Examples:

        sandboxer ssh-key list
    """
    found = platform.ssh.keys()
    rows = [
        (
            one.id,
            one.name,
            one.fingerprint,
            one.sandbox_id or "all",
            ago(one.created_at),
            "until revoked" if one.expires_at is None else until(one.expires_at),
        )
        for one in found
    ]
    table = columns(rows, "ID", "NAME", "FINGERPRINT", "OPENS", "ADDED", "LASTS")
    return Answer(list(found), table, make="ssh-key create FILE")


@verb(keys, "delete")
def remove_key(
    platform: Sandboxer,
    key_id: Annotated[str, typer.Argument(help="As `ssh-key list` shows it.", metavar="ID")],
) -> Answer:
    """Revoke a key; what is open by it ends within a second.

    Examples:

        sandboxer ssh-key delete ssk_0123456789abcdefghjkmnpqrs
    """
    platform.ssh.revoke_key(key_id)
    return gone(id=key_id)


Port = Annotated[int, typer.Argument(min=1, max=65535, help="Port inside the sandbox.")]


@verb(previews, "create")
def create(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    port: Port,
    ttl: Annotated[str | None, typer.Option(help="How long it works: 30m, 24h, 7d.")] = None,
    public: Annotated[bool, typer.Option("--public", help="Open to everyone, no token.")] = False,
    one_time: Annotated[bool, typer.Option("--one-time", help="The link works once.")] = False,
    no_wake: Annotated[
        bool, typer.Option("--no-wake", help="A request does not wake a sleeping sandbox.")
    ] = False,
    despite_findings: DespiteFindings = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the address alone.")] = False,
) -> Answer:
    """Make an address for a port. It stays the same over stop and resume; its token is shown once.

    Secrets and git folders that everyone inside may read are named; a public address is not made then.

    Examples:

        sandboxer preview create dev 3000

        sandboxer preview create dev 8080 --public
    """
    made = platform.sandbox(sandbox_id).previews.create(
        port,
        ttl=ttl,
        public=public,
        one_time=one_time,
        wakes=False if no_wake else None,
        inspect=inspecting(public, despite_findings),
    )
    if made.exposure is not None and not quiet:
        tell_exposure(made.exposure)
    end = f"ends {until(made.expires_at)}; " if made.expires_at is not None else ""
    note = f"[dim]{end}delete it: sandboxer preview delete {sandbox_id} {made.id}[/]"
    address = made.url or "this platform has no listener for ports (proxy_listen)"
    return Answer(made, plain(address), note=None if quiet else note, soft_wrap=True)


@verb(previews, "inspect")
def inspect(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """Look for secrets and git folders that a program in it might show to whoever reaches it.

    Exit code 1 if there are any. What the sandbox changes later nobody looks at.

    Examples:

        sandboxer preview inspect dev
    """
    found = platform.sandbox(sandbox_id).previews.exposure()
    rows = [(one.path, one.kind, f"{one.mode:o}") for one in found.findings]
    looked = f"files and folders looked at below {' '.join(found.folders)}: {found.looked_at}"
    note = plain(looked if found.why is None else f"{looked}, not all: {found.why}")
    parts = [columns(rows, "PATH", "KIND", "MODE")] if rows else [plain("nothing is shown")]
    return Answer(found, *parts, note=note, code=Exit.ERROR if rows else Exit.OK)


@verb(previews, "list")
def list_previews(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """List the open previews of a sandbox.

    Examples:

        sandboxer preview list dev
    """
    found = platform.sandbox(sandbox_id).previews.list()
    rows = [
        (
            one.id,
            str(one.port),
            "public" if one.public else "one-time" if one.one_time else "link",
            ago(one.created_at),
            "until revoked" if one.expires_at is None else until(one.expires_at),
        )
        for one in found
    ]
    table = columns(rows, "ID", "PORT", "KIND", "MADE", "LASTS")
    return Answer(list(found), table, make=f"preview create {sandbox_id} PORT")


@verb(previews, "delete")
def revoke(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    preview_id: Annotated[str, typer.Argument(help="As `preview list` shows it.")],
) -> Answer:
    """Close it again: its link, its cookies, and what is open by them.

    Examples:

        sandboxer preview delete dev prv_0123456789abcdefghjkmnpqrs
    """
    platform.sandbox(sandbox_id).previews.revoke(preview_id)
    return gone(id=preview_id)
