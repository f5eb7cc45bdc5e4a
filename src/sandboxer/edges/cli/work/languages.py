"""`language list|show`: what runs here, and a program to begin with."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.syntax import Syntax

from sandboxer.edges.cli.output import columns, facts_table
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.kernel.values import counted
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.catalogue import Language

app = group("What programs can be written in.")
groups = {"language": app}


@verb(app, "list")
def list_languages(
    platform: Sandboxer,
    image: Annotated[str | None, typer.Option("--image", "-i", help="Only what this image has.")] = None,
    here: Annotated[bool, typer.Option("--here", help="Only what runs on this platform now.")] = False,
    shells: Annotated[bool, typer.Option("--shells", help="Only shells.")] = False,
) -> Answer:
    """List languages and shells.

    Examples:

        sandboxer language list --here

        sandboxer language list --image base --json
    """
    ask = platform.languages.shells if shells else platform.languages.list
    found = ask(image=image, available=True if here else None)
    rows = [
        (
            one.name,
            one.title,
            ", ".join(one.aliases),
            f".{one.extension}",
            ", ".join(one.images) or f"build {one.image}",
            one.version or "",
        )
        for one in found
    ]
    shown = columns(rows, "NAME", "LANGUAGE", "ALSO", "FILE", "IMAGES", "VERSION")
    others = sum(one.is_shell for one in found)
    many = f"{counted(len(found) - others, 'language')}, {counted(others, 'shell')}"
    counts = f"[dim]{many}; one of them:[/] sandboxer language show NAME"
    return Answer(list(found), shown, counts)


@verb(app, "show")
def show(
    platform: Sandboxer,
    name: Annotated[str, typer.Argument(help="Name, alias or extension.", metavar="LANGUAGE")],
) -> Answer:
    """Show how a language is run, and a first program.

    Examples:

        sandboxer language show fortran
    """
    return _show(platform.languages.get(name))


def _show(one: Language) -> Answer:
    facts: list[tuple[str, object]] = [
        ("name", one.name),
        ("language", one.title),
        ("also", ", ".join(one.aliases)),
        ("file", f".{one.extension}"),
        (
            "images",
            ", ".join(one.images) or f"none here; build {one.image}: sandboxer image build {one.image}",
        ),
        ("version", one.version),
        ("compile", None if one.compile is None else " ".join(one.compile)),
        ("run", " ".join(one.run)),
    ]
    # A lexer that does not know the name prints it plainly.
    program = Syntax(one.hello.rstrip("\n"), one.name, background_color="default", word_wrap=True)
    return Answer(one, facts_table(facts), "", program)
