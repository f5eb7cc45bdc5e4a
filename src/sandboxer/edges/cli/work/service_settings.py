"""`service env` and `service domain`: what a service is told in confidence, and its own domains."""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.options import Json, StateDir, Url, client, pairs
from sandboxer.edges.cli.output import columns, err, facts_table, out, plain, print_json
from sandboxer.edges.cli.verbs import Answer, verb
from sandboxer.edges.cli.work.service_output import Ref
from sandboxer.sdk.sync.client import Sandboxer

env = typer.Typer(rich_markup_mode="rich", no_args_is_help=True, help="What it is told in confidence.")
domain = typer.Typer(rich_markup_mode="rich", no_args_is_help=True, help="Domains of one's own.")


@env.command("list")
def env_list(service: Ref, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Show the names in its vault; values never come out.

    Examples:

        sandboxer service env list hello
    """
    with client(url, state_dir) as platform:
        kept = platform.services.vault(service)
    if json:
        print_json(kept)
        return
    for name in kept.names:
        out.print(plain(name))
    if not kept.in_use:
        err.print(f"Not in use yet: sandboxer service redeploy {service}", style="yellow", markup=False)


@env.command("set")
def env_set(
    service: Ref,
    values: Annotated[
        list[str], typer.Argument(help="NAME=VALUE, or NAME- to take one out.", metavar="NAME=VALUE…")
    ],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Set or take out names of its vault; its next process has them.

    Examples:

        sandboxer service env set hello API_KEY=s3cret OLD_KEY-
    """
    gone: dict[str, str | None] = {one[:-1]: None for one in values if "=" not in one and one.endswith("-")}
    kept = pairs([one for one in values if one[:-1] not in gone], "env set")
    with client(url, state_dir) as platform:
        now = platform.services.change_vault(service, {**kept, **gone})
    if json:
        print_json(now)
    else:
        out.print(f"in the vault: {', '.join(now.names) or 'nothing'}", markup=False)
        out.print(f"To use it: sandboxer service redeploy {service}", style="dim", markup=False)


@domain.command("add")
def domain_add(
    service: Ref,
    name: Annotated[str, typer.Argument(help="The domain.", metavar="DOMAIN")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Claim a domain; says what it must serve to prove that it is yours.

    Examples:

        sandboxer service domain add hello app.example.com
    """
    with client(url, state_dir) as platform:
        claim = platform.services.claim_domain(service, name)
    if json:
        print_json(claim)
        return
    out.print(
        facts_table([("domain", claim.domain), ("serve this text", claim.token), ("at", claim.proof_url)])
    )
    out.print(f"Then: sandboxer service domain verify {service} {claim.domain}", style="dim", markup=False)


@domain.command("verify")
def domain_verify(
    service: Ref,
    name: Annotated[str, typer.Argument(help="The domain.", metavar="DOMAIN")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Look whether the domain serves the token; from then on it leads here.

    Examples:

        sandboxer service domain verify hello app.example.com
    """
    with client(url, state_dir) as platform:
        claim = platform.services.verify_domain(service, name)
    if json:
        print_json(claim)
    else:
        out.print(f"{claim.domain} is proven; point its name at this platform", markup=False)


@verb(domain, "list")
def domain_list(platform: Sandboxer, service: Ref) -> Answer:
    """List its domains.

    Examples:

        sandboxer service domain list hello
    """
    claims = platform.services.domains(service)
    rows = [(one.domain, "proven" if one.verified else "claimed", one.proof_url) for one in claims]
    return Answer(claims, columns(rows, "DOMAIN", "STATE", "PROOF"))


@domain.command("remove")
def domain_remove(
    service: Ref,
    name: Annotated[str, typer.Argument(help="The domain.", metavar="DOMAIN")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Let a domain go.

    Examples:

        sandboxer service domain remove hello app.example.com
    """
    with client(url, state_dir) as platform:
        platform.services.remove_domain(service, name)
    if json:
        print_json({"domain": name, "removed": True})
    else:
        out.print(f"{name} leads here no more", markup=False)


@verb(env, "replace")
def env_replace(
    platform: Sandboxer,
    service: Ref,
    values: Annotated[list[str], typer.Argument(help="All there shall be.", metavar="NAME=VALUE…")],
) -> object:
    """Put exactly these names into its vault; its next process has them.

    Examples:

        sandboxer service env replace hello API_KEY=s3cret
    """
    return platform.services.set_vault(service, pairs(values, "env replace"))


@verb(env, "wipe")
def env_wipe(platform: Sandboxer, service: Ref) -> object:
    """Take everything out of its vault; its next process has none.

    Examples:

        sandboxer service env wipe hello
    """
    return platform.services.wipe_vault(service)
