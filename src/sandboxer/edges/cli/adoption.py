"""`adopt-pool`: put a database and a storage pool together on purpose."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.output import err, out, print_json
from sandboxer.kernel.clock import SystemClock
from sandboxer.sandboxes.binding import allow_adoption
from sandboxer.settings import Settings, load_settings
from sandboxer.store.engine import open_store
from sandboxer.store.installation import Installation, ensure
from sandboxer.store.lock import hold_database, hold_state_dir

app = typer.Typer(rich_markup_mode="rich")


@app.command("adopt-pool")
def adopt_pool(
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="State folder.")
    ] = None,
    database: Annotated[str | None, typer.Option(help="Database URL; SQLite in DIR if not given.")] = None,
    json: Json = False,
) -> None:
    """Put a database and a storage pool together on purpose.

    The next start uses both, whatever they were used with before.

    Needed after a dump was restored by the database's own tools, or when the old database is lost for good.
    The platform must be stopped. Every disk stays: those that the database has no record of are shown by
    `sandboxer inspect stale`, and go after `quarantine_grace` or by `sandboxer reap-stale`.

    Examples:

        sandboxer adopt-pool --state-dir /var/lib/sandboxer

        sandboxer adopt-pool --database postgresql://user@db/sandboxer
    """
    settings = load_settings(state_dir=state_dir, database=database)
    with hold_state_dir(settings.state_dir), hold_database(settings.database_url):
        installation = asyncio.run(identify(settings))
        allow_adoption(settings.state_dir, installation.id)
    if json:
        print_json({"installation": installation.id, "state_dir": str(settings.state_dir)})
        return
    out.print(f"The next start adopts the storage pool in {settings.state_dir} for {installation.id}.")
    err.print(f"[dim]next:[/] sandboxer up --state-dir {settings.state_dir}, then sandboxer inspect stale")


async def identify(settings: Settings) -> Installation:
    """Which installation the database is; it gets its id here if it has none."""
    store = await asyncio.to_thread(open_store, settings.database_url)
    try:
        return await store.write(lambda conn: ensure(conn, now=SystemClock().now()))
    finally:
        await store.close()
