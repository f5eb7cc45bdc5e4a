"""`flows check|list`: whether a platform does what the flows of the self-sandbox algorithm ask of one.

It knows of the platform what any client does, an address and a key, and takes back whatever it makes there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.text import Text

from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.options import Json, StateDir
from sandboxer.edges.cli.output import columns, err, out, plain, print_json, resource
from sandboxer.edges.cli.pay import WITH_KEY, KeyFile, KeyNetwork, payer_of_key
from sandboxer.edges.cli.verbs import group
from sandboxer.kernel.program import late
from sandboxer.sdk.credentials import Credentials, find_credentials

if TYPE_CHECKING:
    from sandboxer.sdk import flows
    from sandboxer.sdk.aio import client as sdk
    from sandboxer.sdk.exchange import Payer
else:
    flows, sdk = late("sandboxer.sdk.flows"), late("sandboxer.sdk.aio.client")

STYLES = {"passed": "green", "failed": "bold red", "not_offered": "yellow", "not_tried": "yellow"}
WORDS = {"not_offered": "not offered", "not_tried": "not tried"}
app = group("Check a platform from outside, flow by flow.")
groups = {"flows": app}

Asset = Annotated[
    str | None,
    typer.Option(help="Address of the token to pay in.", rich_help_panel=WITH_KEY),
]
MostUnits = Annotated[
    int | None,
    typer.Option(
        "--most",
        help="Pay no more of it, in its smallest units.",
        rich_help_panel=WITH_KEY,
    ),
]


@app.command("check")
def check(
    url: Annotated[
        str | None, typer.Argument(help="Address of the platform (also SANDBOXER_URL).", metavar="[URL]")
    ] = None,
    only: Annotated[
        list[int] | None, typer.Option("--only", help="Only this flow; can be repeated.", metavar="NUMBER")
    ] = None,
    most_sats: Annotated[
        int, typer.Option(min=0, help="Begin no further check once so many sats are spent or bound.")
    ] = 500,
    key_file: KeyFile = None,
    network: KeyNetwork = None,
    asset: Asset = None,
    most: MostUnits = None,
    json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Run every check of every flow against a platform, with a key of it; exit code 1 if one fails.

    What it makes is named flowcheck-… and is gone when it ends. A check of what the platform does not offer,
    or for which you brought no money, wallet or right, is said to be that, and never to have passed.

    Examples:

        sandboxer flows check https://sandboxes.example

        sandboxer flows check --only 9 --only 13 --json
    """
    _demand_known(only or [])
    payer = None if key_file is None else payer_of_key(key_file, network, [asset] if asset else [], most)
    owner_file = None if state_dir is None else state_dir / "owner.json"
    known = find_credentials(url=url, owner_file=owner_file)
    results = asyncio.run(_run(known, only or [], most_sats, payer, is_json=json))
    is_fine = all(one.verdict != "failed" for one in results)
    if json:
        print_json({"url": known.url, "fine": is_fine, "checks": [asdict(one) for one in results]})
    else:
        _show(known.url, results)
    raise typer.Exit(Exit.OK if is_fine else Exit.ERROR)


@app.command("list")
def list_flows(json: Json = False) -> None:
    """List the flows and what is checked of each, without asking a platform.

    Examples:

        sandboxer flows list
    """
    if json:
        print_json(resource([_told(flow) for flow in flows.FLOWS]))
        return
    rows = [(flow.number, check.says, check.why) for flow in flows.FLOWS for check in flow.checks]
    out.print(columns(rows, "FLOW", "CHECK", "WHY IT MATTERS"))


def _told(flow: flows.Flow) -> dict[str, Any]:
    checks = [{"check": check.says, "why": check.why} for check in flow.checks]
    return {"flow": flow.number, "title": flow.title, "checks": checks}


def _demand_known(only: Collection[int]) -> None:
    known = {flow.number for flow in flows.FLOWS}
    if unknown := sorted(set(only) - known):
        raise typer.BadParameter(
            f"there is no flow {unknown[0]}; there are {min(known)} to {max(known)}", param_hint="--only"
        )


async def _run(
    known: Credentials, only: Collection[int], most_sats: int, payer: Payer | None, *, is_json: bool
) -> list[flows.CheckResult]:
    results: list[flows.CheckResult] = []
    client = sdk.AsyncSandboxer(
        url=known.url, public_key=known.public_key, secret_key=known.secret_key, api_key=known.bearer_token
    )
    planned = sum(len(flow.checks) for flow in flows.FLOWS if not only or flow.number in only)
    checks = flows.iterate_checks(client, only=only, most_sats=most_sats, payer=payer)
    async with client, aclosing(checks) as going:
        with err.status(f"checking {known.url}") as status:
            async for one in going:
                results.append(one)
                status.update(f"checking {known.url}: {len(results)} of {planned} (flow {one.flow})")
                if not is_json and one.verdict == "failed":
                    err.print(failure(one))
    return results


def failure(one: flows.CheckResult) -> Text:
    """Says which check failed, and why: in words of the platform, which may be hostile."""
    return Text.assemble((f"flow {one.flow}: {one.check}", "bold red"), ": ", plain(one.detail))


def unpassed(results: Sequence[flows.CheckResult]) -> list[Text]:
    """Says why checks did not pass, a line a reason: no column of a table has room for that."""
    numbers: dict[tuple[str, str], set[int]] = {}
    for one in results:
        if one.verdict != "passed":
            numbers.setdefault((one.verdict, one.detail or one.why), set()).add(one.flow)
    return [
        Text.assemble(
            (WORDS.get(verdict, verdict), STYLES[verdict]),
            f" in flow {', '.join(map(str, sorted(of)))}: ",
            plain(why),
        )
        for (verdict, why), of in numbers.items()
    ]


def _show(url: str, results: Sequence[flows.CheckResult]) -> None:
    rows = [
        (
            one.flow,
            Text(WORDS.get(one.verdict, one.verdict), style=STYLES[one.verdict]),
            f"{one.seconds:.1f} s",
            one.check,
        )
        for one in results
    ]
    out.print(columns(rows, "FLOW", "VERDICT", "TOOK", "CHECK"))
    if untried := unpassed(results):
        out.print()
    for line in untried:
        out.print(line)
    counts = Counter(WORDS.get(one.verdict, one.verdict) for one in results)
    failed = sorted({one.flow for one in results if one.verdict == "failed"})
    word = f"[bold red]fails flow {', '.join(map(str, failed))}[/]" if failed else "[bold green]fails none[/]"
    out.print(f"\n{escape(url)} {word}: {', '.join(f'{number} {name}' for name, number in counts.items())}.")
