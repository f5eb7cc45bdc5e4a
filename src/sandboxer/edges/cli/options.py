"""Options that many verbs share, and the client they describe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.sdk.confirming import Confirmer
from sandboxer.sdk.credentials import find_credentials
from sandboxer.sdk.signing import Credentials
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


def client(
    url: str | None,
    state_dir: Path | None,
    *,
    timeout_s: float = 60.0,
    confirm: Callable[[Credentials], Confirmer] | None = None,
) -> Sandboxer:
    """Signed with the key of the named state folder, else of the environment.

    `confirm` for verbs that may need a second proof: `confirming.with_wallet`.
    """
    owner_file = None if state_dir is None else state_dir / "owner.json"
    found = find_credentials(url=url, owner_file=owner_file)
    return Sandboxer(
        url=found.url,
        public_key=found.public_key,
        secret_key=found.secret_key,
        timeout_s=timeout_s,
        confirm=None if confirm is None else confirm(found),
    )


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
