"""`e2b env`: what programs written for E2B need in their environment to use this platform."""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.keys import account_named
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.e2b import ROOT, api_key_of

app = group("Let programs written for E2B use this platform.")
groups = {"e2b": app}


@verb(app, "env", may_need_proof=True)
def environment(
    platform: Sandboxer,
    key: Annotated[
        str | None,
        typer.Option(help="A key of yours (sbx-pk-…); its older token ends. Default: a new key (operator)."),
    ] = None,
    account: Annotated[
        str | None, typer.Option(help="Id of the new key's account; without it: default.")
    ] = None,
    opens: Annotated[bool, typer.Option("--open", help="Open the account if there is none.")] = False,
) -> Answer:
    """Make an API key for E2B's clients, and print the lines for their environment. It is shown once.

    Examples:

        sandboxer e2b env > .env

        sandboxer e2b env --key sbx-pk-…
    """
    public_key = key
    if public_key is None:
        public_key = platform.keys.create("e2b", account_named(platform, account, opens=opens)).public_key
    url = platform.credentials.url.rstrip("/")
    lines = {
        "E2B_API_KEY": api_key_of(platform.keys.issue_bearer(public_key).bearer_token),
        "E2B_API_URL": f"{url}{ROOT}",
        "E2B_SANDBOX_URL": f"{url}{ROOT}/envd",
        "E2B_VOLUME_API_URL": f"{url}{ROOT}",
    }
    note = (
        f"The key behind it is {public_key}; `sandboxer key delete {public_key}` ends both. "
        "`sudo sandboxer image build code-interpreter-v1` brings pandas, matplotlib, R, Java and TypeScript "
        "to E2B's code interpreter."
    )
    return Answer(
        lines, *(f"{name}={value}" for name, value in lines.items()), note=note, sep="\n", soft_wrap=True
    )
