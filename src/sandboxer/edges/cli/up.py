"""`up`: the platform in the foreground or, with `-d`, on its own; on request a first sandbox to look at.

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.panel import Panel
from rich.table import Table

from sandboxer.edges.cli import background
from sandboxer.edges.cli.exits import CommandFailed, demand_root
from sandboxer.edges.cli.output import err, out
from sandboxer.kernel.program import late
from sandboxer.kernel.values import brief_value_class
from sandboxer.observe.traces import write_logs
from sandboxer.settings import Settings, load_settings
from sandboxer.settings.strangers import wall_of_strangers

# `up -d` only starts a process that needs the server; and only the demo has a sandbox and a program to show.
if TYPE_CHECKING:
    from rich import syntax

    from sandboxer.edges.http import server as http_server
    from sandboxer.sdk.sync import client
    from sandboxer.sdk.sync.sandbox import Sandbox
else:
    http_server, syntax = late("sandboxer.edges.http.server"), late("rich.syntax")
    client = late("sandboxer.sdk.sync.client")

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


@brief_value_class
class Step:
    name: str
    took_ms: float
    detail: str = ""


@app.command("up")
def up(
    ctx: typer.Context,
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
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it serves; `sandboxer down` stops it.")
    ] = False,
) -> None:
    """Start the platform; it serves until Ctrl-C, and sandboxes outlive it.

    The first start writes the owner's key to DIR/owner.json. Every setting is also a SANDBOXER_* variable:
    see `sandboxer config show`.

    Examples:

        sandboxer up

        sandboxer up -d

        sandboxer up --state-dir /srv/sandboxer --port 8080 --warm-pool 4

        sandboxer up --database postgresql://user@db/sandboxer

        sandboxer up --https 7443

        sandboxer up --demo --once
    """
    settings = _with_https(_settings(state_dir, host, port, database, warm_pool), https)
    if "ext.namespaces" in settings.backends:
        demand_root("`up` makes sandboxes")
    if detach:
        _up_in_background(ctx, settings)
        return
    # Whatever is made from here on is for this user alone, unless it says otherwise.
    os.umask(0o077)
    write_logs(settings.log_level, settings.log_form)
    for chatty in ("alembic", "httpx"):
        logging.getLogger(chatty).setLevel("WARNING")
    # Sets its own level later; its news of starting and stopping are ours already.
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)
    first = FirstSandbox(settings, once=once) if demo else None
    try:
        http_server.run(settings, on_ready=lambda at: _serve(settings, asdict(at), first))
    except OSError as error:
        if error.errno not in CANNOT_LISTEN:
            raise
        raise CommandFailed(
            f"Could not serve on {settings.host}:{settings.port}: {error.strerror or error}",
            next_step="Choose another --port (`make run`: PORT=…); `ss -ltnp` shows what listens there.",
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


def _up_in_background(ctx: typer.Context, settings: Settings) -> None:
    words = ["up", *_given(ctx)]
    at = background.start(words, settings.state_dir)
    _announce(settings, at, stops=f"{_with_state('sandboxer down', settings)} stops it")
    out.print(f"  [dim]log:[/]    {settings.state_dir / background.LOG}", soft_wrap=True)


def _given(ctx: typer.Context) -> Iterator[str]:
    """Yields the options of this call again, but for the one that asks for a process of its own."""
    for option in ctx.command.params:
        value = ctx.params.get(option.name or "")
        if option.name in ("detach", "demo", "once") or value is None:
            continue
        yield from (option.opts[0], str(value.absolute() if isinstance(value, Path) else value))


def _serve(settings: Settings, at: Mapping[str, str | None], first: FirstSandbox | None) -> None:
    _announce(settings, at, stops="Ctrl-C stops it")
    background.tell_ready(at)
    if first is not None:
        first.begin(str(at["api"]))


def _announce(settings: Settings, at: Mapping[str, str | None], *, stops: str) -> None:
    out.print(f"[bold green]●[/] sandboxer serves at [bold]{at['api']}[/]  [dim]({stops})[/]", soft_wrap=True)
    for word, said in _facts(settings, at):
        out.print(f"  [dim]{word + ':':<7}[/] {said}", soft_wrap=True)
    for step in _next_steps(settings):
        out.print(f"  [dim]next:[/]   {step}", soft_wrap=True)


def _next_steps(settings: Settings) -> Iterator[str]:
    if (settings.images_dir / "base" / "image.json").exists():
        yield _with_state("sandboxer create", settings)
        return
    # Nothing can be made without it.
    yield f"{_with_state('sudo sandboxer image build base', settings)}  [dim](there is no base image yet)[/]"
    yield f"{_with_state('sudo sandboxer image load FILE', settings)}  [dim](or: one that was saved)[/]"


def _facts(settings: Settings, at: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yields every listener besides the API's, and what an operator wants to know first."""
    if settings.https:
        root = settings.state_dir / "edge/certificates/pki/authorities/local/root.crt"
        url = settings.public_url or f"https://localhost:{settings.proxy_https_port}"
        yield "TLS", f"{url}  [dim](trust {root})[/]"
    if (ports := at.get("ports")) is not None:
        example = f"http://8000-ID.{settings.proxy_domain}:{ports.rpartition(':')[2]}"
        yield "ports", f"{ports}  [dim](of sandboxes, as {example})[/]"
    if (ssh := at.get("ssh")) is not None:
        yield "ssh", ssh
    if (local := at.get("socket")) is not None:
        yield "socket", f"{local}  [dim](for users in the group {settings.socket_group})[/]"
    yield "key", str(settings.owner_file)
    if taken := _taken_of_disk(settings):
        yield "disk", taken
    yield "walls", f"of strangers: {wall_of_strangers(settings)}"
    if settings.is_by_invitation:
        yield "money", "nothing is charged; only accounts that you open may create anything"


def _with_state(command: str, settings: Settings) -> str:
    """Names the state folder in a command where it is not the usual one."""
    is_usual = settings.state_dir == Settings.model_fields["state_dir"].default
    return command if is_usual else f"{command} --state-dir {settings.state_dir}"


def _taken_of_disk(settings: Settings) -> str | None:
    """Says what the storage pool takes of the host's disk; None where it is no file of its own."""
    pool = settings.state_dir / "pool.btrfs"
    if not pool.exists():
        return None
    most = "" if settings.pool_size_mb is None else f", up to {settings.pool_size_mb} MB"
    return f"{pool.stat().st_blocks * 512 // 2**20} MB in {pool}, which grows with use{most}"


class FirstSandbox:
    """The demo, beside the server in a thread of its own: it talks to it over HTTP like anyone else."""

    def __init__(self, settings: Settings, *, once: bool) -> None:
        self._settings = settings
        self._once = once
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None

    def begin(self, url: str) -> None:
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
    with client.Sandboxer(owner_file=owner_file, url=url) as platform:
        create, sandbox = _timed("create", lambda: platform.create(profile=PROFILE, ttl="1h", name="first"))
        out.print(f"\n[bold green]●[/] sandbox [bold]{sandbox.id}[/] is {sandbox.info.state}")
        write, _ = _timed("write a file", lambda: sandbox.files.write(PATH, PROGRAM))
        run, result = _timed("run it", lambda: sandbox.exec(["python3", PATH]))
        again, _ = _timed("a second command", lambda: sandbox.exec(["true"]))
        out.print(
            Panel(syntax.Syntax(PROGRAM.strip(), "python", theme="ansi_dark"), title=PATH, title_align="left")
        )
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
