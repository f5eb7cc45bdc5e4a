"""`config show`: the settings in force here, and what each one means. Works without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.output import columns, out, print_json
from sandboxer.settings import Settings, load_settings

app = typer.Typer(help="Show the settings in force.", no_args_is_help=True, rich_markup_mode="rich")
groups = {"config": app}


@app.callback()
def group() -> None:
    """Show the settings in force."""


@app.command("show")
def show(
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="State folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Show every setting: its value (defaults, then SANDBOXER_* variables, then flags) and its meaning.

    Examples:

        sandboxer config show

        SANDBOXER_PORT=9000 sandboxer config show --json
    """
    settings = load_settings(state_dir=state_dir)
    values = settings.model_dump(mode="json", by_alias=True)
    if json:
        print_json(values)
        return
    rows = [
        (name, _text(value), f"SANDBOXER_{name.upper()}", _meaning(name)) for name, value in values.items()
    ]
    out.print(columns(rows, "SETTING", "VALUE", "VARIABLE", "MEANING"))


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _meaning(name: str) -> str:
    for field_name, field in Settings.model_fields.items():
        if name in (field_name, field.alias):
            return field.description or ""
    return ""
