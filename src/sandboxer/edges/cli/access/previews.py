"""`preview create|list|revoke`: addresses that open a port inside a sandbox."""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.options import SandboxId
from sandboxer.edges.cli.output import ago, columns, until
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.sdk.sync.client import Sandboxer

app = group("Open a port inside a sandbox by a link.")
groups = {"preview": app}
Port = Annotated[int, typer.Argument(min=1, max=65535, help="Port inside the sandbox.")]


@verb(app, "create")
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
) -> Answer:
    """Make an address for a port. It stays the same over stop and resume; its token is shown once.

    Examples:

        sandboxer preview create sbx_0123456789abcdefghjkmnpqrs 3000

        sandboxer preview create sbx_0123456789abcdefghjkmnpqrs 8080 --public
    """
    made = platform.sandbox(sandbox_id).previews.create(
        port, ttl=ttl, public=public, one_time=one_time, wakes=False if no_wake else None
    )
    lines = [made.url or "this platform has no listener for ports (proxy_listen)"]
    if made.expires_at is not None:
        revoke = f"sandboxer preview revoke {sandbox_id} {made.id}"
        lines.append(f"[dim]ends {until(made.expires_at)}; revoke: {revoke}[/]")
    return Answer(made, *lines, sep="\n", soft_wrap=True)


@verb(app, "list")
def list_previews(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """List the previews of a sandbox that stand.

    Examples:

        sandboxer preview list sbx_0123456789abcdefghjkmnpqrs
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
    return Answer(list(found), columns(rows, "ID", "PORT", "KIND", "MADE", "LASTS"))


@verb(app, "revoke")
def revoke(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    preview_id: Annotated[str, typer.Argument(help="As `preview list` shows it.")],
) -> Answer:
    """Close it again: its link, its cookies, and what is open by them.

    Examples:

        sandboxer preview revoke sbx_0123456789abcdefghjkmnpqrs prv_0123456789abcdefghjkmnpqrs
    """
    platform.sandbox(sandbox_id).previews.revoke(preview_id)
    return Answer({"id": preview_id, "revoked": True}, f"revoked {preview_id}")
