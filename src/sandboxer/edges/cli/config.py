"""`config show`: the settings in force here, and what each one means. Works without a server.

`edge caddy`: the configuration of the TLS edge in front of the API and the ports of sandboxes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Folder, Json
from sandboxer.edges.cli.output import columns, out, print_json
from sandboxer.edges.cli.verbs import Answer, show_answer
from sandboxer.edges.proxy.caddy import EdgePlan, render, write_plan
from sandboxer.settings import Settings, load_settings

app = typer.Typer(help="Show the settings in force.", no_args_is_help=True, rich_markup_mode="rich")
edge = typer.Typer(help="TLS in front of the platform.", no_args_is_help=True, rich_markup_mode="rich")
groups = {"config": app, "edge": edge}


@app.callback()
def group() -> None:
    """Show the settings in force."""


@app.command("show")
def show(state_dir: Folder = None, json: Json = False) -> None:
    """Show every setting: its value (defaults, then SANDBOXER_* variables, then flags) and its meaning.

    Examples:

        sandboxer config show

        SANDBOXER_PORT=9000 sandboxer config show --json
    """
    settings = load_settings(state_dir=state_dir)
    values = settings.model_dump(mode="json", by_alias=True)
    rows = [
        (name, _text(value), f"SANDBOXER_{name.upper()}", _meaning(name)) for name, value in values.items()
    ]
    show_answer(Answer(values, columns(rows, "SETTING", "VALUE", "VARIABLE", "MEANING")), is_json=json)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _meaning(name: str) -> str:
    for field_name, field in Settings.model_fields.items():
        if name in (field_name, field.alias):
            return field.description or ""
    return ""


@edge.callback()
def entry() -> None:
    """TLS in front of the platform."""


@edge.command("caddy")
def caddy(
    site: Annotated[str, typer.Option(help="Public name of the API.")],
    file: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write it there and have Caddy check it.")
    ] = None,
    https_port: Annotated[int, typer.Option(help="Port that Caddy serves.")] = 443,
    internal: Annotated[
        bool, typer.Option("--internal", help="Certificates of an authority of Caddy's own.")
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option(help="Wildcard certificate for the names of ports.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="And its key.")] = None,
    json: Json = False,
) -> None:
    """Print (or write and check) a Caddyfile: certificates by themselves, HTTP/2, WebSockets, event streams.

    Where the platform listens is taken from its settings (SANDBOXER_HOST, SANDBOXER_PORT,
    SANDBOXER_PROXY_LISTEN). Set SANDBOXER_PROXY_DOMAIN, SANDBOXER_PROXY_HTTPS_PORT=443 and
    SANDBOXER_TRUSTED_PROXIES=127.0.0.1 there.

    Examples:

        sandboxer edge caddy --site sandboxer.example.com

        sandboxer edge caddy --site sandboxer.example.com --write Caddyfile
    """
    if (certificate is None) != (key is None):
        raise CommandFailed("a certificate needs its key", next_step="Give both --certificate and --key.")
    settings = load_settings()
    if (ports := settings.proxy_address) is None:
        raise CommandFailed("ports are not served", next_step="Set SANDBOXER_PROXY_LISTEN to an address.")
    plan = EdgePlan(
        site=site,
        domain=settings.proxy_domain,
        api=_dial(settings.host, settings.port),
        ports=_dial(*ports),
        https_port=https_port,
        internal=internal,
        certificate=certificate,
        key=key,
    )
    if file is not None:
        asyncio.run(write_plan(plan, file))
    if json:
        print_json({"caddyfile": render(plan), "file": None if file is None else str(file)})
    elif file is None:
        sys.stdout.write(render(plan))
    else:
        out.print(f"wrote {file}; Caddy takes it. Next: systemctl reload caddy")


def _dial(host: str, port: int) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}"
