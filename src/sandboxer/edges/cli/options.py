"""Options that many verbs share, and the client they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.sdk.sync.client import Sandboxer

PLATFORM = "Which platform"

Url = Annotated[
    str | None,
    typer.Option("--url", help="Address of the platform (also SANDBOXER_URL).", rich_help_panel=PLATFORM),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        help="Take key and address from DIR/owner.json (also SANDBOXER_STATE_DIR).",
        metavar="DIR",
        rich_help_panel=PLATFORM,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
SandboxId = Annotated[str, typer.Argument(help="Id of the sandbox (sbx_…).", metavar="ID")]


def client(url: str | None, state_dir: Path | None, *, timeout_s: float = 60.0) -> Sandboxer:
    """Signed with the key of the named state folder, else of the environment."""
    owner_file = None if state_dir is None else state_dir / "owner.json"
    return Sandboxer(url=url, owner_file=owner_file, timeout_s=timeout_s)


def pairs(words: list[str] | None, option: str) -> dict[str, str]:
    """`a=1 b=2` as given by a repeatable option."""
    found: dict[str, str] = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise CommandFailed(
                f"{option} {word!r} is not NAME=VALUE", next_step=f"Write {option} NAME=VALUE."
            )
        found[name] = value
    return found
