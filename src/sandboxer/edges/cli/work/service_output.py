"""How the verbs of `service` read and show services."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.output import ago, facts_table, out, plain, print_json, until
from sandboxer.edges.cli.verbs import Answer
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
    return Answer(service, line, code=Exit.ERROR if service.state in _BAD else 0)


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
        ("price", f"{service.rate_msats_per_s} msats/s"),
    ]
    return Answer(service, facts_table(facts))


def print_line(line: LogLine, is_json: bool) -> None:
    if is_json:
        print_json(line)
        return
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
