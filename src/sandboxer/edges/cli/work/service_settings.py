"""What the verbs of `service` share: how they read and show services.

`service env` and `service domain`: what a service is told in confidence, and its own domains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.options import pairs
from sandboxer.edges.cli.output import ago, columns, facts_table, out, plain, tell_exposure, until
from sandboxer.edges.cli.verbs import Answer, gone, group, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.services import LogLine, Service

Ref = Annotated[str, typer.Argument(help="Name or id of the service.", metavar="SERVICE")]
STATE_STYLES = {
    "running": "green",
    "starting": "blue",
    "creating": "blue",
    "restarting": "yellow",
    "unhealthy": "bold yellow",
    "sleeping": "cyan",
    "stopped": "dim",
    "crash_looping": "bold red",
    "failed": "bold red",
}
_BAD = frozenset({"unhealthy", "crash_looping", "failed"})
_STREAM_STYLES = {"stderr": "yellow", "system": "dim"}


def state_of(service: Service) -> Text:
    return Text(service.state, style=STATE_STYLES.get(service.state, ""))


def changed(service: Service) -> Answer:
    """Shows what a change came to; exit code 1 if it does not run as it should."""
    line = Text.assemble(service.name, " is ", state_of(service))
    if service.state == "running":
        line.append(f" at {service.url or service.host}")
    else:
        line.append(f": {plain(service.reason)}")
    note = None
    if service.public and service.exposure is not None:
        tell_exposure(service.exposure)
    if service.state == "running" and not service.public:
        note = f"[dim]private; to open it to all:[/] sandboxer service update {service.name} --public"
    return Answer(service, line, note=note, code=Exit.ERROR if service.state in _BAD else 0)


def show_service(service: Service) -> Answer:
    health, restart = service.health, service.restart
    facts: list[tuple[str, object]] = [
        ("name", service.name),
        ("id", service.id),
        ("state", state_of(service)),
        ("reason", service.reason),
        ("since", ago(service.state_since)),
        ("address", service.url or service.host),
        ("domains", " ".join(service.domains)),
        ("public", "yes" if service.public else "no"),
        ("sandbox", service.sandbox_id),
        ("process", f"{service.run}, port {service.port}"),
        ("runs", service.command or "a bootstrap script"),
        ("health", f"{health.path or 'takes connections'}, every {health.interval_s:g} s"),
        ("restart", f"{restart.policy}, {service.crashes} ends lately"),
        ("restarts", until(service.restart_at)),
        ("sleeps", f"after {service.idle_s:g} s" if service.idle_s else "never"),
        ("volumes", " ".join(f"{one.volume_id}:{one.path}:{one.mode}" for one in service.volumes)),
        ("secrets", " ".join(service.secrets)),
        ("deployed", ago(service.deployed_at)),
        ("locked", ago(service.locked_at)),
        ("price", f"{service.rate_msats_per_s} msats/s" if service.rate_msats_per_s else None),
    ]
    return Answer(service, facts_table(facts))


def print_line(line: LogLine) -> None:
    moment = line.at.astimezone().strftime("%H:%M:%S")
    out.print(
        Text.assemble((f"{moment} ", "dim"), (str(plain(line.text)), _STREAM_STYLES.get(line.stream, "")))
    )


def files_in(words: list[str] | None) -> dict[str, bytes | str | Path] | None:
    """`app.py`, or `build/app.py:/srv/app.py`."""
    if not words:
        return None
    found: dict[str, bytes | str | Path] = {}
    for word in words:
        local, _, path = word.partition(":")
        if not Path(local).is_file():
            raise CommandFailed(f"{local} is not a file here", next_step="Name a file: --file LOCAL[:PATH].")
        found[path or Path(local).name] = Path(local)
    return found


def health_of(path: str | None, start_timeout_s: float | None) -> dict[str, Any] | None:
    wanted = {"path": path, "start_timeout_s": start_timeout_s}
    return {name: value for name, value in wanted.items() if value is not None} or None


env = group("What it is told in confidence.")
domain = group("Domains of one's own.")
DomainName = Annotated[str, typer.Argument(help="The domain.", metavar="DOMAIN")]


@verb(env, "show")
def env_show(platform: Sandboxer, service: Ref) -> Answer:
    """Show the names in its vault; values never come out.

    Examples:

        sandboxer service env show hello
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


@verb(domain, "create")
def domain_add(platform: Sandboxer, service: Ref, name: DomainName) -> Answer:
    """Claim a domain; says what it must serve to prove that it is yours.

    Examples:

        sandboxer service domain create hello app.example.com
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


@verb(domain, "delete")
def domain_remove(platform: Sandboxer, service: Ref, name: DomainName) -> Answer:
    """Let a domain go.

    Examples:

        sandboxer service domain delete hello app.example.com
    """
    platform.services.remove_domain(service, name)
    return gone(domain=name)


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
