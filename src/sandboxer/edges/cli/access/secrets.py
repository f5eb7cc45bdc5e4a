"""`secret set|list|show|delete|inject|wipe`: values come from stdin or a prompt, never from argv."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import SandboxId
from sandboxer.edges.cli.output import ago, columns, size
from sandboxer.edges.cli.verbs import Answer, gone, group, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.secrets import InjectedSecret

app = group("Keep secrets sealed, inject them into sandboxes, wipe them.")
groups = {"secret": app}
Name = Annotated[str, typer.Argument(help="Letters, digits and _.", metavar="NAME")]


@verb(app, "set")
def set_secret(platform: Sandboxer, name: Name) -> Answer:
    """Keep a secret of the account. Its value is read from stdin, or asked for; one line end is cut off.

    Examples:

        printf %s "$TOKEN" | sandboxer secret set GITHUB_TOKEN

        sandboxer secret set GITHUB_TOKEN < token.txt
    """
    value = _read_value(name)
    kept = platform.secrets.set(name, value)
    return Answer(kept, f"kept {kept.name} ({size(kept.size_bytes)})")


@verb(app, "list")
def list_secrets(
    platform: Sandboxer,
    sandbox: Annotated[str | None, typer.Option(help="What this sandbox has been given instead.")] = None,
) -> Answer:
    """List the names of the account's secrets. No command shows a value.

    Examples:

        sandboxer secret list

        sandboxer secret list --sandbox dev
    """
    if sandbox is not None:
        return _given(platform.sandbox(sandbox).secrets.list())
    found = platform.secrets.list()
    rows = [(one.name, str(one.size_bytes), ago(one.updated_at)) for one in found]
    return Answer(list(found), columns(rows, "NAME", "BYTES", "SET"), make="secret set NAME")


@verb(app, "show")
def show_secret(platform: Sandboxer, name: Name) -> object:
    """Show the size and age of a secret; its value never comes back.

    Examples:

        sandboxer secret show GITHUB_TOKEN
    """
    return platform.secrets.get(name)


@verb(app, "delete")
def remove(platform: Sandboxer, name: Name) -> Answer:
    """Forget a secret. Sandboxes that have it keep it until it is wiped there.

    Examples:

        sandboxer secret delete GITHUB_TOKEN
    """
    platform.secrets.remove(name)
    return gone(name=name)


@verb(app, "inject")
def inject(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    names: Annotated[list[str], typer.Argument(help="Of the account's secrets.", metavar="NAME…")],
    files: Annotated[bool, typer.Option("--files", help="Also as /run/secrets/NAME, in memory.")] = False,
    no_env: Annotated[bool, typer.Option("--no-env", help="Not as variables of commands.")] = False,
) -> Answer:
    """Give a sandbox secrets; nothing in it is restarted. Commands started from now on find them.

    Examples:

        sandboxer secret inject dev GITHUB_TOKEN

        sandboxer secret inject dev DEPLOY_KEY --files --no-env
    """
    found = platform.sandbox(sandbox_id).secrets.inject(*names, env=not no_env, files=files)
    return _given(found)


def _given(found: Sequence[InjectedSecret]) -> Answer:
    rows = [(one.name, "yes" if one.env else "no", one.file or "-", ago(one.injected_at)) for one in found]
    return Answer(list(found), columns(rows, "NAME", "ENV", "FILE", "INJECTED"))


@verb(app, "wipe")
def wipe(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    name: Annotated[str | None, typer.Argument(help="One of them; all without it.", metavar="NAME")] = None,
) -> Answer:
    """Wipe secrets from a sandbox: files removed, no command gets them any more.

    Examples:

        sandboxer secret wipe dev

        sandboxer secret wipe dev GITHUB_TOKEN
    """
    done = platform.sandbox(sandbox_id).secrets.wipe(name)
    lines = ["wiped " + (", ".join(done.wiped) or "nothing")]
    if done.may_still_hold:
        lines.append(f"[dim]started meanwhile and running still: {', '.join(done.may_still_hold)}[/]")
    return Answer(done, *lines, sep="\n")


def _read_value(name: str) -> str:
    if sys.stdin.isatty():
        value = str(typer.prompt(f"value of {name}", hide_input=True))
    else:
        try:
            value = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError:
            raise CommandFailed("the value is not UTF-8", next_step="Encode it, in base64 say.") from None
    if not (value := value.removesuffix("\n")):
        raise CommandFailed("the value is empty", next_step=f"printf %s … | sandboxer secret set {name}")
    return value
