"""`service env` and `service domain`: what a service is told in confidence, and its own domains."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from sandboxer.edges.cli.options import pairs
from sandboxer.edges.cli.output import columns, facts_table, plain
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.edges.cli.work.service_output import Ref
from sandboxer.sdk.sync.client import Sandboxer

env = group("What it is told in confidence.")
domain = group("Domains of one's own.")
DomainName = Annotated[str, typer.Argument(help="The domain.", metavar="DOMAIN")]


@verb(env, "list")
def env_list(platform: Sandboxer, service: Ref) -> Answer:
    """Show the names in its vault; values never come out.

    Examples:

        sandboxer service env list hello
    """
    kept = platform.services.vault(service)
    unused = Text(f"Not in use yet: sandboxer service redeploy {service}", style="yellow")
    return Answer(kept, *map(plain, kept.names), sep="\n", note=None if kept.in_use else unused)


@verb(env, "set")
def env_set(
    platform: Sandboxer,
    service: Ref,
    values: Annotated[
        list[str], typer.Argument(help="NAME=VALUE, or NAME- to take one out.", metavar="NAME=VALUE…")
    ],
) -> Answer:
    """Set or take out names of its vault; its next process has them.

    Examples:

        sandboxer service env set hello API_KEY=s3cret OLD_KEY-
    """
    gone: dict[str, str | None] = {one[:-1]: None for one in values if "=" not in one and one.endswith("-")}
    kept = pairs([one for one in values if one[:-1] not in gone], "env set")
    now = platform.services.change_vault(service, {**kept, **gone})
    held = plain(f"in the vault: {', '.join(now.names) or 'nothing'}")
    return Answer(now, held, Text(f"To use it: sandboxer service redeploy {service}", style="dim"), sep="\n")


@verb(domain, "add")
def domain_add(platform: Sandboxer, service: Ref, name: DomainName) -> Answer:
    """Claim a domain; says what it must serve to prove that it is yours.

    Examples:

        sandboxer service domain add hello app.example.com
    """
    claim = platform.services.claim_domain(service, name)
    facts = [("domain", claim.domain), ("serve this text", claim.token), ("at", claim.proof_url)]
    then = Text(f"Then: sandboxer service domain verify {service} {claim.domain}", style="dim")
    return Answer(claim, facts_table(facts), then)


@verb(domain, "verify")
def domain_verify(platform: Sandboxer, service: Ref, name: DomainName) -> Answer:
    """Look whether the domain serves the token; from then on it leads here.

    Examples:

        sandboxer service domain verify hello app.example.com
    """
    claim = platform.services.verify_domain(service, name)
    return Answer(claim, plain(f"{claim.domain} is proven; point its name at this platform"))


@verb(domain, "list")
def domain_list(platform: Sandboxer, service: Ref) -> Answer:
    """List its domains.

    Examples:

        sandboxer service domain list hello
    """
    claims = platform.services.domains(service)
    rows = [(one.domain, "proven" if one.verified else "claimed", one.proof_url) for one in claims]
    return Answer(claims, columns(rows, "DOMAIN", "STATE", "PROOF"))


@verb(domain, "remove")
def domain_remove(platform: Sandboxer, service: Ref, name: DomainName) -> Answer:
    """Let a domain go.

    Examples:

        sandboxer service domain remove hello app.example.com
    """
    platform.services.remove_domain(service, name)
    return Answer({"domain": name, "removed": True}, plain(f"{name} leads here no more"))


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
