"""`languages`: what runs here, and a program to begin with."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.syntax import Syntax

from sandboxer.edges.cli.output import columns, facts_table
from sandboxer.edges.cli.verbs import Answer, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.catalogue import Language

app = typer.Typer(rich_markup_mode="rich")


@verb(app, "languages")
def languages(
    platform: Sandboxer,
    name: Annotated[str | None, typer.Argument(help="One language: name, alias or extension.")] = None,
    image: Annotated[str | None, typer.Option("--image", "-i", help="Only what this image has.")] = None,
    here: Annotated[bool, typer.Option("--here", help="Only what runs on this platform now.")] = False,
    shells: Annotated[bool, typer.Option("--shells", help="Only shells.")] = False,
) -> Answer:
    """List languages and shells; with a name, show how that one is run and a first program.

    Examples:

        sandboxer languages --here

        sandboxer languages fortran

        sandboxer languages --image base --json
    """
    if name is not None:
        return _show(platform.languages.get(name))
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
    counts = f"[dim]{len(found) - others} languages, {others} shells; one of them:[/] languages NAME"
    return Answer(list(found), shown, counts)


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
