"""`up -d` and `down`: the platform as a process of its own, where no systemd keeps it.

The child tells that it serves by systemd's own way (`sd_notify(3)`), so a unit of `Type=notify` hears the
same. Which process it is says the lock in the state folder, with the moment at which that process began:
`down` never ends another one that has got its number since.
"""

from __future__ import annotations

import json as encoding
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import httpx
import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json, duration
from sandboxer.edges.cli.output import err
from sandboxer.edges.cli.verbs import Answer, show_answer
from sandboxer.settings import NOTIFY, load_settings, take_notify_address
from sandboxer.store.lock import open_holder

app = typer.Typer(rich_markup_mode="rich")
# What the child says beside `READY=1`, as JSON; systemd ignores names that begin so.
LISTENERS = "X_SANDBOXER_LISTENERS"
LOG = "sandboxer.log"
UNIT = "sandboxer.service"
# The first start makes the storage pool, on a slow disk.
PATIENCE_S = 120.0
TAIL = 15


@app.command("down")
def down(
    state_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Of the platform to stop.")] = None,
    timeout: Annotated[float, duration("--timeout", words="How long to wait.")] = 60.0,
    json: Json = False,
) -> None:
    """Stop the platform of this machine; sandboxes outlive it.

    Examples:

        sandboxer down

        sandboxer down --state-dir /srv/sandboxer
    """
    folder = load_settings(state_dir=state_dir).state_dir
    pid = stop(folder, timeout)
    said = f"No platform uses {folder}." if pid is None else f"Stopped (process {pid})."
    show_answer(Answer({"process": pid, "state_dir": str(folder)}, said), is_json=json)


def stop(state_dir: Path, timeout_s: float) -> int | None:
    """Ends the server of this folder and waits for it. Returns which process it was; None: there was none."""
    if (found := open_holder(state_dir)) is None:
        return None
    pid, process = found
    try:
        if _is_of_systemd(pid):
            # It would start another one.
            subprocess.run(["systemctl", "stop", UNIT], check=True)
        else:
            signal.pidfd_send_signal(process, signal.SIGTERM)
        # A descriptor of a process is readable when the process has ended.
        if not select.select([process], [], [], timeout_s)[0]:
            raise CommandFailed(
                f"Process {pid} was asked to stop and has not yet.",
                next_step="Wait with a longer --timeout, or read its log.",
            )
    finally:
        os.close(process)
    return pid


def _is_of_systemd(pid: int) -> bool:
    try:
        return f"/{UNIT}" in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def start(words: Sequence[str], state_dir: Path) -> Mapping[str, str | None]:
    """Starts `sandboxer up` with these words, on its own, and waits until it is healthy. Returns its
    listeners.

    Raises CommandFailed with the last lines of its log if it ends before.
    """
    if (found := open_holder(state_dir)) is not None:
        os.close(found[1])
        raise CommandFailed(
            f"A platform runs on {state_dir} already (process {found[0]}).",
            next_step=f"Stop it first: sandboxer down --state-dir {state_dir}",
        )
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = state_dir / LOG
    with _heard() as (heard, address):
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        began = os.fstat(written).st_size
        child = subprocess.Popen(
            ["env", f"{NOTIFY}={address}", sys.executable, "-m", "sandboxer.edges.cli.main", *words],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
        os.close(written)
        try:
            listeners = _wait(heard, child)
        except CommandFailed as error:
            with log.open(errors="replace") as said:
                said.seek(began)
                err.print("".join(said.readlines()[-TAIL:]).rstrip(), markup=False)
            error.remedy = f"Its log is {log}."
            raise
    return listeners


@contextmanager
def _heard() -> Iterator[tuple[socket.socket, str]]:
    with (
        tempfile.TemporaryDirectory(prefix="sandboxer-up-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard,
    ):
        address = f"{folder}/notify"
        heard.bind(address)
        heard.settimeout(0.1)
        yield heard, address


def _wait(heard: socket.socket, child: subprocess.Popen[bytes]) -> Mapping[str, str | None]:
    deadline = time.monotonic() + PATIENCE_S
    while child.poll() is None:
        try:
            said = heard.recv(65536).decode()
        except TimeoutError:
            if time.monotonic() > deadline:
                child.terminate()
                raise CommandFailed(f"It does not serve after {PATIENCE_S:g} s.") from None
            continue
        lines = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        if lines.get("READY") == "1":
            listeners: dict[str, str | None] = encoding.loads(lines[LISTENERS])
            _demand_health(f"{listeners['api']}/health")
            return listeners
    raise CommandFailed(f"It ended with exit code {child.returncode}.")


def _demand_health(url: str) -> None:
    answer = httpx.get(url, timeout=30.0, trust_env=False)
    if answer.status_code != 200:
        raise CommandFailed(f"It serves, and is not healthy: {answer.text[:500]}")


def tell_ready(listeners: Mapping[str, str | None]) -> None:
    """Tells whoever started this process that it serves, if they asked to be told."""
    if not (address := take_notify_address()):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        # An address that begins with @ has no file.
        to.connect("\0" + address[1:] if address.startswith("@") else address)
        to.send(f"READY=1\n{LISTENERS}={encoding.dumps(dict(listeners))}".encode())
