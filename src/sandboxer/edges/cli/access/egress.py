"""`egress show|allow|deny|remove|explain|log`: what a sandbox of trust level `semi` may reach outside.

The word `account` in place of an id means the rules that hold in all sandboxes of the account.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.options import Json, SandboxId, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, out, print_json
from sandboxer.kernel.errors import NotFound
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.egress import AccountEgress, Egress
from sandboxer.wire import egress as wire

app = typer.Typer(
    help="What a sandbox of trust level `semi` may reach outside.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
groups = {"egress": app}
Whose = Annotated[
    str,
    typer.Argument(
        help="Id of the sandbox (sbx_…), or `account` for what holds in all of them.", metavar="ID|account"
    ),
]
Host = Annotated[str, typer.Argument(help="`example.com`, `*.example.com`, `*`; with `:PORT` for one port.")]
Method = Annotated[list[str] | None, typer.Option("--method", help="Only these; opens its TLS.")]
Path = Annotated[str | None, typer.Option("--path", help="Only this path and below; opens its TLS.")]


@app.command("show")
def show(whose: Whose, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """The rules that stand, and how much went through.

    Examples:

        sandboxer egress show sbx_0123456789abcdefghjkmnpqrs

        sandboxer egress show account
    """
    with client(url, state_dir) as platform:
        found = _egress(platform, whose).show()
    _print(found, json=json)


@app.command("allow")
def allow(
    whose: Whose,
    host: Host,
    method: Method = None,
    path: Path = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Let it reach a host from now on.

    Examples:

        sandboxer egress allow sbx_0123456789abcdefghjkmnpqrs pypi.org

        sandboxer egress allow sbx_0123456789abcdefghjkmnpqrs "*.npmjs.org"

        sandboxer egress allow sbx_0123456789abcdefghjkmnpqrs api.example.com --method POST --path /v1

        sandboxer egress allow account pypi.org
    """
    with client(url, state_dir) as platform:
        name, facts = _rule(host, method, path)
        found = _egress(platform, whose).allow(name, **facts)
    _print(found, json=json)


@app.command("deny")
def deny(
    whose: Whose,
    host: Host,
    method: Method = None,
    path: Path = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Keep it from a host, whatever else allows it; what is open there ends.

    Examples:

        sandboxer egress deny sbx_0123456789abcdefghjkmnpqrs tracker.example.com

        sandboxer egress deny account tracker.example.com
    """
    with client(url, state_dir) as platform:
        name, facts = _rule(host, method, path)
        found = _egress(platform, whose).deny(name, **facts)
    _print(found, json=json)


@app.command("remove")
def remove(
    whose: Whose,
    host: Host,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Take away every rule about a host, or one port of it; what is open there and not allowed any more ends.

    Examples:

        sandboxer egress remove sbx_0123456789abcdefghjkmnpqrs pypi.org
    """
    with client(url, state_dir) as platform:
        egress = _egress(platform, whose)
        standing = egress.show()
        name, facts = _rule(host.lower(), None, None)
        ports = facts.get("ports")
        about = [
            one.model_dump() for one in standing.rules if one.host == name and ports in (None, one.ports)
        ]
        if not about:
            raise NotFound(what="rule", id=host)
        found = egress.remove(*about)
    _print(found, json=json)


@app.command("explain")
def explain(
    whose: Whose,
    address: Annotated[str, typer.Argument(metavar="URL", help="What would be reached.")],
    method: Annotated[str, typer.Option(help="How.")] = "GET",
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Say whether it may reach a URL, and by which rule. Nobody outside is asked.

    Examples:

        sandboxer egress explain sbx_0123456789abcdefghjkmnpqrs https://pypi.org/simple/
    """
    with client(url, state_dir) as platform:
        told = _egress(platform, whose).explain(address, method=method)
    if json:
        print_json(told)
        return
    word = "[green]allowed[/]" if told.allowed else "[red]denied[/]"
    out.print(f"{word} {told.method} {told.url}", soft_wrap=True)
    out.print(told.why + (" [dim](its TLS is opened)[/]" if told.tls_opened else ""), soft_wrap=True)


@app.command("log")
def log(sandbox_id: SandboxId, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """What it was refused lately, and why.

    Examples:

        sandboxer egress log sbx_0123456789abcdefghjkmnpqrs
    """
    with client(url, state_dir) as platform:
        found = platform.sandbox(sandbox_id).egress.denials()
    if json:
        print_json(list(found))
        return
    rows = [
        (ago(one.last_at), str(one.count), f"{one.method} {one.host}:{one.port}{one.path}", one.why)
        for one in found
    ]
    out.print(columns(rows, "LAST", "TIMES", "WHAT", "WHY"))


def _egress(platform: Sandboxer, whose: str) -> Egress | AccountEgress:
    return platform.egress if whose == "account" else platform.sandbox(whose).egress


def _rule(host: str, method: list[str] | None, path: str | None) -> tuple[str, dict[str, object]]:
    name, colon, port = host.rpartition(":")
    facts: dict[str, object] = {}
    if colon and port.isascii() and port.isdigit():
        facts["ports"] = [int(port)]
    else:
        name = host
    if method:
        facts["methods"] = [one.upper() for one in method]
    if path is not None:
        facts["path"] = path
    return name, facts


def _print(found: wire.Egress | wire.AccountEgress, *, json: bool) -> None:
    if json:
        print_json(found)
        return
    rows = [
        (
            one.action,
            one.host,
            ",".join(map(str, one.ports)),
            "|".join(one.methods) or "-",
            one.path or "-",
            one.note,
        )
        for one in found.rules
    ]
    out.print(columns(rows, "", "HOST", "PORTS", "METHODS", "PATH", "NOTE"))
    if isinstance(found, wire.AccountEgress):
        out.print("[dim]in all sandboxes of the account, beside each one's own rules[/]")
        return
    out.print(f"[dim]everything else: {found.default}[/]")
    for one in found.secrets:
        out.print(f"[dim]{one.secret} goes into {one.header} of requests to {one.host}[/]")
    ended = f", {found.ended_connections} ended by this" if found.ended_connections else ""
    out.print(
        f"[dim]{found.sent_bytes} bytes sent, {found.received_bytes} received,"
        f" {found.open_connections} connections open{ended}[/]"
    )
