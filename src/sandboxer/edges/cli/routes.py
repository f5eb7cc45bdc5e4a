"""`sandboxer route`: which backend makes a sandbox, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from sandboxer.edges.cli.options import IsolationOption, SandboxId
from sandboxer.edges.cli.output import columns, plain
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.routes import Considered

app = group("Which backend makes a sandbox, and why.")
groups = {"route": app}
_STYLES = {"chosen": "bold green", "fallback": "cyan", "refused": "yellow"}
_NAMES = ", ".join(("explicit", "prefer-self-hosted", "lowest-cost", "lowest-latency"))


@verb(app, "explain")
def explain(
    platform: Sandboxer,
    profile: Annotated[str, typer.Argument(help="As in `agent-dev`.", metavar="PROFILE")],
    isolation: IsolationOption = None,
    strategy: Annotated[str | None, typer.Option(help=f"One of {_NAMES}.")] = None,
    region: Annotated[str | None, typer.Option(help="Where it has to stand.")] = None,
    gpus: Annotated[int, typer.Option(help="GPUs for it alone.")] = 0,
    gpu: Annotated[str | None, typer.Option(help="Their model.")] = None,
    max_sats_per_hour: Annotated[
        int | None, typer.Option("--max-sats-per-hour", metavar="SATS", help="The most that it may cost.")
    ] = None,
    can: Annotated[
        list[str] | None,
        typer.Option("--can", help="What can be done with it, as in snapshot; repeatable."),
    ] = None,
) -> Answer:
    """Say of every backend whether it would make your sandbox of a profile, and why. Nothing is made.

    Examples:

        sandboxer route explain agent-dev

        sandboxer route explain agent-dev --isolation strong --can snapshot

        sandboxer route explain agent-dev --strategy lowest-cost --json
    """
    found = platform.explain_route(
        profile,
        isolation=isolation,
        strategy=strategy,
        region=region,
        gpus=gpus,
        gpu=gpu,
        max_sats_per_hour=max_sats_per_hour,
        capabilities=can or (),
    )
    since = "" if found.isolation_since is None else f", since {found.isolation_since}"
    needs = plain(f"{found.profile}: {found.strategy}, isolation {found.isolation}{since}")
    return Answer(found, needs, _table(found.considered), sep="\n")


@verb(app, "show")
def show(platform: Sandboxer, sandbox_id: SandboxId) -> Answer:
    """Show why a sandbox stands where it does: who was considered when it was created, and who was asked.

    Examples:

        sandboxer route show dev
    """
    info = platform.get(sandbox_id).info
    kept = info.route
    if kept is None:
        return Answer(None, plain(f"{info.id} stands on {info.backend}; why was not kept then"))
    lines: list[object] = [plain(f"{info.id}: {kept.strategy}, on {info.backend}"), _table(kept.considered)]
    if kept.more:
        lines.append(plain(f"and {kept.more} more, all refused"))
    if kept.attempts:
        asked = [
            (one.backend, "made it" if one.made else "failed", f"{one.took_ms:.1f} ms", one.reason)
            for one in kept.attempts
        ]
        lines.append(columns(asked, "\nASKED", "", "\nTOOK", "\nWHAT CAME OF IT"))
    return Answer(kept, *lines, sep="\n")


def _table(considered: Sequence[Considered]) -> Table:
    rows = [
        (
            one.backend,
            Text(one.verdict, style=_STYLES[one.verdict]),
            _per_hour(one.rate_msats_per_s),
            "" if one.latency_ms is None else f"{one.latency_ms:.1f} ms",
            plain(one.reason),
        )
        for one in considered
    ]
    return columns(rows, "BACKEND", "", "SATS AN HOUR", "MEASURED", "WHY")


def _per_hour(msats_per_s: int | None) -> str:
    """Returns a price in sats, exactly: a thousandth of a sat a second is 3.6 an hour."""
    if msats_per_s is None:
        return "?"
    sats, rest = divmod(msats_per_s * 3600, 1000)
    return f"{sats}.{rest:03d}".rstrip("0").rstrip(".")
