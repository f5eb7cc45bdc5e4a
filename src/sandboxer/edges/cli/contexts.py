"""`login` and `context`: several platforms, each with its key, and the one that commands are for."""

from __future__ import annotations

import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.output import columns, err, facts_table
from sandboxer.edges.cli.verbs import Answer, gone, group, show_answer
from sandboxer.sdk.contexts import LOCAL, Context, Contexts
from sandboxer.sdk.credentials import own_files
from sandboxer.sdk.errors import Refused
from sandboxer.sdk.sync.client import Sandboxer

app = typer.Typer(rich_markup_mode="rich")
contexts = group("Platforms that you have logged in to, and the one in use.")
groups = {"context": contexts}
Name = Annotated[str, typer.Argument(help="Name of a context; `local` is this machine's.", metavar="NAME")]


@app.command("login")
def login(
    url: Annotated[str, typer.Argument(help="Address of the platform.", metavar="URL")],
    name: Annotated[str | None, typer.Option(help="What to call it; its host if not given.")] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Keep the key in a file of yours, not in the keyring.")
    ] = False,
    json: Json = False,
) -> None:
    """Log in to a platform: asks for a key, tries it, keeps it and uses it from now on.

    The key is a bearer token (sk_…), or a public key (sbx-pk-…) and its secret key. In scripts it comes by
    standard input, a line each. It is kept in the keyring of this system where the extra "keyring" is there,
    or in a file that only you can read.

    Examples:

        sandboxer login https://sandboxes.example.com

        printf '%s\\n' "$TOKEN" | sandboxer login https://example.com --name ci
    """
    address = url.rstrip("/")
    where = urlsplit(address)
    if where.scheme not in ("http", "https") or not where.hostname:
        raise CommandFailed(f"{url!r} is no address", next_step="Write https://HOST or http://HOST:PORT.")
    called = name or where.hostname
    if called == LOCAL:
        raise CommandFailed("`local` is the platform of this machine", next_step="Take another --name.")
    context = _asked(Context(called, address))
    _try(context)
    kept = Contexts(own_files()).add(context, may_use_keyring=not plain)
    place = "the keyring" if kept.is_in_keyring else str(own_files().folder)
    shown = {"name": called, "url": address, "keyring": kept.is_in_keyring}
    show_answer(
        Answer(shown, f"logged in to {address}; context {called} is in use, its key in {place}"), is_json=json
    )


def _asked(context: Context) -> Context:
    """The context with the key that the person gives."""
    word = _line("API key (sk_…) or public key (sbx-pk-…): ")
    if word.startswith("sk_"):
        return Context(context.name, context.url, secret=word)
    if not word.startswith("sbx-pk-"):
        raise CommandFailed("this is no key", next_step="Ask the operator of the platform for one.")
    return Context(context.name, context.url, public_key=word, secret=_line("Secret key (sbx-sk-…): "))


def _line(question: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    return str(typer.prompt(question.rstrip(": "), hide_input=True)).strip()


def _try(context: Context) -> None:
    """Raises what the platform says to a key that it does not take."""
    signs = bool(context.public_key)
    with Sandboxer(
        url=context.url,
        public_key=context.public_key or None,
        secret_key=context.secret if signs else None,
        api_key=None if signs else context.secret,
    ) as platform:
        try:
            next(iter(platform.list(limit=1)), None)
        except Refused:
            # Known, though not to everything: a key for one purpose logs in as well.
            err.print("[dim]this key may not list sandboxes[/]")


@contexts.command("list")
def list_contexts(json: Json = False) -> None:
    """List the platforms that you have logged in to.

    Examples:

        sandboxer context list
    """
    known = Contexts(own_files())
    found = [{"name": LOCAL, "url": "", "in_use": known.current == LOCAL}]
    found += [{"name": n, "url": one.url, "in_use": known.current == n} for n, one in known.all.items()]
    rows = [("*" if one["in_use"] else "", one["name"], one["url"] or "this machine's") for one in found]
    show_answer(
        Answer({"items": found, "next": None}, columns(rows, "USED", "NAME", "ADDRESS")), is_json=json
    )


@contexts.command("use")
def use(name: Name, json: Json = False) -> None:
    """Let commands be for this platform from now on.

    Examples:

        sandboxer context use prod

        sandboxer context use local
    """
    Contexts(own_files()).use(name)
    show_answer(Answer({"name": name, "in_use": True}, f"{name} is in use"), is_json=json)


@contexts.command("show")
def show(name: Annotated[str | None, typer.Argument(metavar="NAME")] = None, json: Json = False) -> None:
    """Show a context, the one in use if none is named; never its secret.

    Examples:

        sandboxer context show
    """
    known = Contexts(own_files())
    name = name or known.current
    one = Context(LOCAL, "") if name == LOCAL else known.get(name)
    kind = "of this machine" if name == LOCAL else "signing key" if one.public_key else "bearer token"
    facts = {
        "name": name,
        "url": one.url,
        "key": one.public_key or kind,
        "keyring": one.is_in_keyring,
        "in_use": known.current == name,
    }
    show_answer(Answer(facts, facts_table(facts.items())), is_json=json)


@contexts.command("delete")
def delete(name: Name, json: Json = False) -> None:
    """Forget a context and its key. The key itself stays valid: `sandboxer key delete` ends it.

    Examples:

        sandboxer context delete prod
    """
    Contexts(own_files()).delete(name)
    show_answer(gone(name=name), is_json=json)
