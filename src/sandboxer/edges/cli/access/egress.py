"""`egress show|allow|deny|delete|replace|explain|log`: what a sandbox with a filtered network may reach.

The word `account` in place of an id means the rules that hold in all sandboxes of the account.
"""

from __future__ import annotations

from json import loads as parse_json
from pathlib import Path as FilePath
from typing import Annotated

import typer
from rich.console import Group

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import SandboxId
from sandboxer.edges.cli.output import ago, columns, size
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.kernel.errors import NotFound
from sandboxer.sdk.sync.access import AccountEgress, Egress
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire import egress as wire

app = group("What a sandbox with a filtered network may reach.")
groups = {"egress": app}
Target = Annotated[
    str,
    typer.Argument(
        help="Id of the sandbox (sbx_…), or `account` for what holds in all of them.", metavar="ID|account"
    ),
]
Host = Annotated[str, typer.Argument(help="`example.com`, `*.example.com`, `*`; with `:PORT`, or `:*`: all.")]
Method = Annotated[list[str] | None, typer.Option("--method", help="Only these; opens its TLS.")]
Path = Annotated[str | None, typer.Option("--path", help="Only this path and below; opens its TLS.")]


@verb(app, "show")
def show(platform: Sandboxer, target: Target) -> object:
    """Show the rules, and how much went through.

    Examples:

        sandboxer egress show dev

        sandboxer egress show account
    """
    return _policy(_egress(platform, target).show())


@verb(app, "allow")
def allow(
    platform: Sandboxer, target: Target, host: Host, method: Method = None, path: Path = None
) -> object:
    """Let it reach a host from now on.

    Examples:

        sandboxer egress allow dev pypi.org

        sandboxer egress allow dev "*.npmjs.org"

        sandboxer egress allow dev api.example.com --method POST --path /v1

        sandboxer egress allow account pypi.org
    """
    name, facts = _rule(host, method, path)
    return _policy(_egress(platform, target).allow(name, **facts))


@verb(app, "deny")
def deny(platform: Sandboxer, target: Target, host: Host, method: Method = None, path: Path = None) -> object:
    """Keep it from a host, whatever else allows it; what is open there ends.

    Examples:

        sandboxer egress deny dev tracker.example.com

        sandboxer egress deny account tracker.example.com
    """
    name, facts = _rule(host, method, path)
    return _policy(_egress(platform, target).deny(name, **facts))


@verb(app, "delete")
def remove(platform: Sandboxer, target: Target, host: Host) -> object:
    """Take away every rule about a host, or one port of it; what is open there and not allowed any more ends.

    Examples:

        sandboxer egress delete dev pypi.org
    """
    egress = _egress(platform, target)
    standing = egress.show()
    name, facts = _rule(host.lower(), None, None)
    ports = facts.get("ports")
    about = [one.model_dump() for one in standing.rules if one.host == name and ports in (None, one.ports)]
    if not about:
        raise NotFound(what="rule", id=host, hint=f"See the rules: sandboxer egress show {target}.")
    return _policy(egress.remove(*about))


@verb(app, "explain")
def explain(
    platform: Sandboxer,
    target: Target,
    address: Annotated[str, typer.Argument(metavar="URL", help="What would be reached.")],
    method: Annotated[str, typer.Option(help="How.")] = "GET",
) -> Answer:
    """Say whether it may reach a URL, and by which rule. Nobody outside is asked.

    Examples:

        sandboxer egress explain dev https://pypi.org/simple/
    """
    told = _egress(platform, target).explain(address, method=method)
    word = "[green]allowed[/]" if told.allowed else "[red]denied[/]"
    why = told.why + (" [dim](its TLS is opened)[/]" if told.tls_opened else "")
    return Answer(told, f"{word} {told.method} {told.url}", why, sep="\n", soft_wrap=True)


@verb(app, "replace")
def replace(
    platform: Sandboxer,
    target: Target,
    file: Annotated[
        FilePath, typer.Argument(help="JSON: `rules`, and of a sandbox `default`, `secrets`, `limits`.")
    ],
) -> object:
    """Replace the whole policy; it holds at once.

    Examples:

        sandboxer egress replace dev policy.json
    """
    try:
        policy = parse_json(file.read_text())
    except (OSError, ValueError) as error:
        raise CommandFailed(
            f"{file} cannot be read as JSON: {error}", next_step="docs/guides/egress.md shows such a file."
        ) from None
    found: wire.Egress | wire.AccountEgress
    if target == "account":
        found = platform.egress.replace(policy.get("rules", []))
    else:
        found = platform.sandbox(target).egress.replace(**policy)
    return _policy(found)


@verb(app, "log")
def log(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """What it was refused lately, and why.

    Examples:

        sandboxer egress log dev
    """
    found = platform.sandbox(sandbox_id).egress.denials()
    rows = [
        (ago(one.last_at), str(one.count), f"{one.method} {one.host}:{one.port}{one.path}", one.why)
        for one in found
    ]
    return Answer(list(found), columns(rows, "LAST", "TIMES", "WHAT", "WHY"))


def _egress(platform: Sandboxer, target: str) -> Egress | AccountEgress:
    return platform.egress if target == "account" else platform.sandbox(target).egress


def _rule(host: str, method: list[str] | None, path: str | None) -> tuple[str, dict[str, object]]:
    name, colon, port = host.rpartition(":")
    facts: dict[str, object] = {}
    if colon and port == "*":
        facts["ports"] = []
    elif colon and port.isascii() and port.isdigit():
        facts["ports"] = [int(port)]
    else:
        name = host
    if method:
        facts["methods"] = [one.upper() for one in method]
    if path is not None:
        facts["path"] = path
    return name, facts


def _policy(found: wire.Egress | wire.AccountEgress) -> Answer:
    rows = [
        (
            one.action,
            one.host,
            ",".join(map(str, one.ports)) or "every",
            "|".join(one.methods) or "-",
            one.path or "-",
            one.note,
        )
        for one in found.rules
    ]
    rules = columns(rows, "", "HOST", "PORTS", "METHODS", "PATH", "NOTE")
    if isinstance(found, wire.AccountEgress):
        where = "[dim]in all sandboxes of the account, beside each one's own rules[/]"
        return Answer(found, Group(rules, where))
    ended = f", {found.ended_connections} ended by this" if found.ended_connections else ""
    lines = [
        f"[dim]everything else: {found.default}[/]",
        *(f"[dim]{one.secret} goes into {one.header} of requests to {one.host}[/]" for one in found.secrets),
        f"[dim]{size(found.sent_bytes)} sent, {size(found.received_bytes)} received,"
        f" {found.open_connections} connections open{ended}[/]",
    ]
    return Answer(found, Group(rules, *lines))
