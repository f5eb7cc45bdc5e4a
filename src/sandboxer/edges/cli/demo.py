"""The first minute of a new user: a sandbox, a small program in it, its output, and where the time went."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.output import out
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox

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


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    took_ms: float
    detail: str = ""


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
