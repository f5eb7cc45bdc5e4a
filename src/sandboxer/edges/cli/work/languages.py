"""`languages`: what runs here, and a program to begin with."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.syntax import Syntax

from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import columns, facts_table, out, print_json
from sandboxer.wire.catalogue import Language

app = typer.Typer(rich_markup_mode="rich")


@app.command("languages")
def languages(
    name: Annotated[str | None, typer.Argument(help="One language: name, alias or extension.")] = None,
    image: Annotated[str | None, typer.Option("--image", "-i", help="Only what this image has.")] = None,
    here: Annotated[bool, typer.Option("--here", help="Only what runs on this platform now.")] = False,
    shells: Annotated[bool, typer.Option("--shells", help="Only shells.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """List languages and shells; with a name, show how that one is run and a first program.

    Examples:

        sandboxer languages --here

        sandboxer languages fortran

        sandboxer languages --image base --json
    """
    with client(url, state_dir) as platform:
        if name is not None:
            one = platform.languages.get(name)
            print_json(one) if json else _show(one)
            return
        ask = platform.languages.shells if shells else platform.languages.list
        found = ask(image=image, available=True if here else None)
    if json:
        print_json(list(found))
        return
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
    out.print(columns(rows, "NAME", "LANGUAGE", "ALSO", "FILE", "IMAGES", "VERSION"))
    tongues = sum(not one.is_shell for one in found)
    out.print(f"[dim]{tongues} languages, {len(found) - tongues} shells; one of them:[/] languages NAME")


def _show(one: Language) -> None:
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
    out.print(facts_table(facts))
    out.print()
    # A lexer that does not know the name prints it plainly.
    out.print(Syntax(one.hello.rstrip("\n"), one.name, background_color="default", word_wrap=True))
