"""What a platform offers: `profile`, `capabilities`, `discover`."""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.output import NETWORKS, columns
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.kernel.errors import NotFound
from sandboxer.sdk.sync.client import Sandboxer

app = typer.Typer(rich_markup_mode="rich")
profiles = group("What sandboxes can be made of.")
groups = {"profile": profiles}


@verb(profiles, "list")
def list_profiles(platform: Sandboxer) -> Answer:
    """List profiles.

    Examples:

        sandboxer profile list
    """
    found = platform.profiles()
    return Answer(
        list(found),
        columns(
            [(one.id, one.version, NETWORKS[one.trust], one.title) for one in found],
            "ID",
            "VERSION",
            "NETWORK",
            "",
        ),
    )


@verb(profiles, "show")
def show_profile(
    platform: Sandboxer, name: Annotated[str, typer.Argument(help="As in `agent-dev`.", metavar="PROFILE")]
) -> object:
    """Show what a profile makes.

    Examples:

        sandboxer profile show agent-dev
    """
    wanted = f"profile.{name.removeprefix('profile.')}"
    found = {one.id: one for one in platform.profiles()}
    if wanted not in found:
        raise NotFound(what="profile", id=name)
    return found[wanted]


@verb(app, "capabilities")
def capabilities(platform: Sandboxer) -> object:
    """Show what this platform can do.

    Examples:

        sandboxer capabilities --json
    """
    return platform.capabilities()


@verb(app, "discover")
def discover(platform: Sandboxer) -> object:
    """Show what a stranger finds at this platform: documents, prices, how to sign.

    Examples:

        sandboxer discover --json
        SANDBOXER_URL=https://sandboxes.example sandboxer discover
    """
    return platform.discover()
