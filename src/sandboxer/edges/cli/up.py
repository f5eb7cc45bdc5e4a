"""`up`: the platform in the foreground, and on request a first sandbox to look at.

`--demo` is the first minute of a new user: a sandbox, a small program in it, its output, and where the
time went.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.output import err, out
from sandboxer.edges.http.server import run as run_server
from sandboxer.observe.traces import write_logs
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.settings import Settings, load_settings

CANNOT_LISTEN = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)
T = TypeVar("T")
PROFILE = "profile.agent-dev"
PATH = "/workspace/first.py"
PROGRAM = """\
import os, platform, socket

def is_prime(n):
    return all(n % d for d in range(2, int(n**0.5) + 1))

print("primes:", *filter(is_prime, range(2, 60)))
print("python", platform.python_version(), "on Linux", platform.release())
print("user id inside:", os.getuid())
print("processes I can see:", sum(p.isdigit() for p in os.listdir("/proc")))
try:
    socket.create_connection(("192.0.2.1", 80), timeout=1)
except OSError as error:
    print("the network says:", error)
"""
app = typer.Typer(rich_markup_mode="rich")


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    took_ms: float
    detail: str = ""


@app.command("up")
def up(
    state_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="All state in this folder.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    database: Annotated[str | None, typer.Option(help="Database URL; SQLite in DIR if not given.")] = None,
    warm_pool: Annotated[
        int | None, typer.Option(metavar="N", help="Keep N sandboxes of the default profile ready.")
    ] = None,
    https: Annotated[
        int | None,
        typer.Option("--https", metavar="PORT", help="Serve TLS there too, by Caddy and its own authority."),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Create a sandbox and run a program in it.")] = False,
    once: Annotated[bool, typer.Option("--once", help="With --demo: stop after it.")] = False,
) -> None:
    """Start the platform; it serves until Ctrl-C, and sandboxes outlive it.

    The first start writes the owner's key to DIR/owner.json. Every setting is also a SANDBOXER_* variable:
    see `sandboxer config show`.

    Examples:

        sandboxer up

        sandboxer up --state-dir /srv/sandboxer --port 8080 --warm-pool 4

        sandboxer up --database postgresql://user@db/sandboxer

        sandboxer up --https 7443

        sandboxer up --demo --once
    """
    settings = _with_https(_settings(state_dir, host, port, database, warm_pool), https)
    # Whatever is made from here on is for this user alone, unless it says otherwise.
    os.umask(0o077)
    write_logs(settings.log_level, settings.log_form)
    for chatty in ("alembic", "httpx"):
        logging.getLogger(chatty).setLevel("WARNING")
    # Sets its own level later; its news of starting and stopping are ours already.
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)
    first = FirstSandbox(settings, once=once) if demo else None
    try:
        run_server(settings, on_ready=first.begin if first else lambda url: _announce(settings, url))
    except OSError as error:
        if error.errno not in CANNOT_LISTEN:
            raise
        raise CommandFailed(
            f"Could not serve on {settings.host}:{settings.port}: {error}",
            next_step="Choose another --host or --port, or stop what listens there.",
        ) from error
    finally:
        if first is not None:
            first.join()
    if first is not None and first.error is not None:
        raise first.error


def _settings(
    state_dir: Path | None, host: str | None, port: int | None, database: str | None, warm_pool: int | None
) -> Settings:
    settings = load_settings(state_dir=state_dir, host=host, port=port, database=database)
    if warm_pool is None:
        return settings
    return settings.model_copy(
        update={"warm_pool": {settings.default_profile: warm_pool} if warm_pool else {}}
    )


def _with_https(settings: Settings, port: int | None) -> Settings:
    """Caddy comes from this machine, so what it says of callers is believed."""
    if port is None and not settings.https:
        return settings
    port = port or settings.proxy_https_port or 7443
    return settings.model_copy(
        update={
            "https": True,
            "proxy_https_port": port,
            "trusted_proxies": (*settings.trusted_proxies, "127.0.0.1", "::1"),
        }
    )


def _announce(settings: Settings, url: str) -> None:
    out.print(f"[bold green]●[/] sandboxer serves at [bold]{url}[/]  [dim](Ctrl-C stops it)[/]")
    if settings.https:
        root = settings.state_dir / "edge/certificates/pki/authorities/local/root.crt"
        url = settings.public_url or f"https://localhost:{settings.proxy_https_port}"
        out.print(f"  [dim]TLS:[/]  {url}  [dim](trust {root})[/]")
    out.print(f"  [dim]key:[/]  {settings.owner_file}")
    out.print(f"  [dim]next:[/] sandboxer create --state-dir {settings.state_dir}")


class FirstSandbox:
    """The demo, beside the server in a thread of its own: it talks to it over HTTP like anyone else."""

    def __init__(self, settings: Settings, *, once: bool) -> None:
        self._settings = settings
        self._once = once
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None

    def begin(self, url: str) -> None:
        _announce(self._settings, url)
        self._thread = threading.Thread(target=self._show, args=(url,))
        self._thread.start()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _show(self, url: str) -> None:
        try:
            sandbox_id = show_first_sandbox(self._settings.owner_file, url, keep=not self._once)
            if not self._once:
                out.print(
                    f"\n[dim]try:[/] sandboxer shell {sandbox_id} --state-dir {self._settings.state_dir}"
                )
                out.print("[dim]serving until Ctrl-C …[/]")
        except Exception as error:
            # Told by the main thread once the platform is closed.
            self.error = error
            err.print("[red]the demo failed[/]; stopping")
        if self._once or self.error is not None:
            os.kill(os.getpid(), signal.SIGTERM)


def show_first_sandbox(owner_file: Path, url: str, *, keep: bool) -> str:
    """Everything over signed HTTP, as any other client would. Returns the sandbox's id."""
    with Sandboxer(owner_file=owner_file, url=url) as platform:
        create, sandbox = _timed("create", lambda: platform.create(profile=PROFILE, ttl="1h", name="first"))
        out.print(f"\n[bold green]●[/] sandbox [bold]{sandbox.id}[/] is {sandbox.info.state}")
        write, _ = _timed("write a file", lambda: sandbox.files.write(PATH, PROGRAM))
        run, result = _timed("run it", lambda: sandbox.exec(["python3", PATH]))
        again, _ = _timed("a second command", lambda: sandbox.exec(["true"]))
        out.print(Panel(Syntax(PROGRAM.strip(), "python", theme="ansi_dark"), title=PATH, title_align="left"))
        out.print(Panel((result.stdout + result.stderr).rstrip(), title="its output", border_style="green"))
        if result.exit_code:
            raise CommandFailed(f"The program ended with exit code {result.exit_code}.")
        steps = [create, write, run, again]
        if not keep:
            steps.append(_timed("destroy", sandbox.destroy)[0])
        out.print(_timings(sandbox, steps))
    return sandbox.id


def _timed(name: str, act: Callable[[], T]) -> tuple[Step, T]:
    start = time.perf_counter()
    result = act()
    return Step(name, (time.perf_counter() - start) * 1000), result


def _timings(sandbox: Sandbox, steps: list[Step]) -> Table:
    table = Table(title="Timings, seen by the client", title_justify="left", box=None, pad_edge=False)
    table.add_column("step")
    table.add_column("ms", justify="right", style="bold")
    table.add_column("", style="dim")
    longest = max(step.took_ms for step in steps)
    for step in steps:
        table.add_row(step.name, f"{step.took_ms:.1f}", "█" * max(1, round(24 * step.took_ms / longest)))
    inside = sandbox.info.timings_ms
    for name, took in inside.items():
        table.add_row(f"[dim]  of create, {name.replace('_', ' ')}[/]", f"[dim]{took:.1f}[/]")
    return table
