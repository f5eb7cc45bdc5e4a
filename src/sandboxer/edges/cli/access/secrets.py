"""`secrets set|list|remove|inject|injected|wipe`: values come from stdin or a prompt, never from argv."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import SandboxId
from sandboxer.edges.cli.output import ago, columns
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.sdk.sync.client import Sandboxer

app = group("Keep secrets sealed, inject them into sandboxes, wipe them.")
groups = {"secrets": app}
Name = Annotated[str, typer.Argument(help="Letters, digits and _.", metavar="NAME")]


@verb(app, "set")
def set_secret(platform: Sandboxer, name: Name) -> Answer:
    """Keep a secret of the account. Its value is read from stdin, or asked for; one line end is cut off.

    Examples:

        printf %s "$TOKEN" | sandboxer secrets set GITHUB_TOKEN

        sandboxer secrets set GITHUB_TOKEN < token.txt
    """
    value = _read_value(name)
    kept = platform.secrets.set(name, value)
    return Answer(kept, f"kept {kept.name} ({kept.size_bytes} bytes)")


@verb(app, "list")
def list_secrets(platform: Sandboxer) -> Answer:
    """List the names of the account's secrets. No command shows a value.

    Examples:

        sandboxer secrets list
    """
    found = platform.secrets.list()
    rows = [(one.name, str(one.size_bytes), ago(one.updated_at)) for one in found]
    return Answer(list(found), columns(rows, "NAME", "BYTES", "SET"))


@verb(app, "show")
def show_secret(platform: Sandboxer, name: Name) -> object:
    """Show the size and age of a secret; its value never comes back.

    Examples:

        sandboxer secrets show GITHUB_TOKEN
    """
    return platform.secrets.get(name)


@verb(app, "remove")
def remove(platform: Sandboxer, name: Name) -> Answer:
    """Forget a secret. Sandboxes that have it keep it until it is wiped there.

    Examples:

        sandboxer secrets remove GITHUB_TOKEN
    """
    platform.secrets.remove(name)
    return Answer({"name": name, "removed": True}, f"removed {name}")


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

        sandboxer secrets inject sbx_0123456789abcdefghjkmnpqrs GITHUB_TOKEN

        sandboxer secrets inject sbx_0123456789abcdefghjkmnpqrs DEPLOY_KEY --files --no-env
    """
    found = platform.sandbox(sandbox_id).secrets.inject(*names, env=not no_env, files=files)
    rows = [(one.name, "yes" if one.env else "no", one.file or "-", ago(one.injected_at)) for one in found]
    return Answer(list(found), columns(rows, "NAME", "ENV", "FILE", "INJECTED"))


@verb(app, "injected")
def injected(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """List what a sandbox has been given.

    Examples:

        sandboxer secrets injected sbx_0123456789abcdefghjkmnpqrs
    """
    found = platform.sandbox(sandbox_id).secrets.list()
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

        sandboxer secrets wipe sbx_0123456789abcdefghjkmnpqrs

        sandboxer secrets wipe sbx_0123456789abcdefghjkmnpqrs GITHUB_TOKEN
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
    value = value.removesuffix("\n")
    if not value:
        raise CommandFailed("the value is empty", next_step=f"printf %s … | sandboxer secrets set {name}")
    return value
