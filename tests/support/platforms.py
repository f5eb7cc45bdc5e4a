"""Platforms for clients to talk to: on the scripted fake in a thread, or a real `sandboxer up` of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from bench.census import remove_cgroups
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.edges.http.app import create_app
from sandboxer.edges.http.server import Server, config, listen
from sandboxer.sdk.errors import Unreachable
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.settings import Settings
from sandboxer.wiring import open_platform
from tests.support.crash import kill_everything
from tests.support.forking import Forked, forking

IMAGES = Path(os.environ.get("SANDBOXER_TEST_IMAGES", "/var/lib/sandboxer/images"))
ROOT = Path(__file__).resolve().parents[2]
NONE: Mapping[str, str] = MappingProxyType({})
PROGRAM = "sandboxer.edges.cli.main"
Process = subprocess.Popen[bytes] | Forked


@dataclass(frozen=True)
class Up:
    """A platform that answers."""

    url: str
    state_dir: Path

    @property
    def owner_file(self) -> Path:
        return self.state_dir / "owner.json"

    @property
    def environment(self) -> dict[str, str]:
        """For a client process that should find it."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXER_")}
        return plain | {"SANDBOXER_CREDENTIALS": str(self.owner_file), "SANDBOXER_URL": self.url}


@contextmanager
def scripted_platform(state_dir: Path, **more: Any) -> Iterator[Up]:
    """Real HTTP, real store, sandboxes in memory. Its own thread, so that blocking clients can call it."""
    listening = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    started, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        # Wallets sign for the address at which they ask.
        facts: dict[str, Any] = {"state_dir": state_dir, "host": "127.0.0.1", "port": 0, "public_url": url}
        settings = Settings(**{**facts, "limit_auth": 10_000, **more})
        backends = {"ext.namespaces": Scripted(name="ext.namespaces")}
        async with open_platform(settings, backends=backends) as platform:  # type: ignore[arg-type]
            server = Server(config(create_app(platform), settings), started.set)
            async with asyncio.TaskGroup() as group:
                group.create_task(server.serve(sockets=[listening]))
                await stop.wait()
                server.should_exit = server.force_exit = True

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(30), "the platform did not start"
        yield Up(url, state_dir)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()
        listening.close()


def why_not_real() -> str | None:
    """Why a real sandbox cannot be made here, or None."""
    if os.geteuid() != 0:
        return "real sandboxes need root"
    if not (IMAGES / "base" / "image.json").is_file():
        return f"no base image in {IMAGES} (make image)"
    if not (ROOT / "guest" / "build" / "launcher").is_file():
        return "the guest is not built (make -C guest)"
    return None


@contextmanager
def real_platform(
    state_dir: Path,
    *,
    pool_mb: int = 3072,
    images: Path = IMAGES,
    settings: Mapping[str, str] = NONE,
    program: str = PROGRAM,
) -> Iterator[Up]:
    """`sandboxer up` as an operator would start it, with its own state; everything is removed at the end."""
    try:
        with served_once(
            state_dir, free_port(), pool_mb=pool_mb, images=images, settings=settings, program=program
        ) as up:
            try:
                yield up
            finally:
                destroy_everything(up)
    finally:
        remove_leftovers(state_dir)


@contextmanager
def served_once(
    state_dir: Path,
    port: int,
    *,
    pool_mb: int = 3072,
    images: Path = IMAGES,
    settings: Mapping[str, str] = NONE,
    program: str = PROGRAM,
) -> Iterator[Up]:
    """One life of the server; sandboxes outlive it. `settings`: its `SANDBOXER_*` variables."""
    up, process = start_server(
        state_dir, port, pool_mb=pool_mb, images=images, settings=settings, program=program
    )
    try:
        yield up
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def start_server(
    state_dir: Path,
    port: int,
    *,
    pool_mb: int = 3072,
    images: Path = IMAGES,
    settings: Mapping[str, str] = NONE,
    python: str = sys.executable,
    program: str = PROGRAM,
) -> tuple[Up, Process]:
    """A server that answers; whoever starts it ends it. `python`: of the environment it is installed in."""
    state_dir.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXER_")}
    environment |= {"SANDBOXER_IMAGES_DIR": str(images), "SANDBOXER_POOL_SIZE_MB": str(pool_mb)}
    environment |= settings
    words = ["up", "--state-dir", str(state_dir), "--port", str(port)]
    with (state_dir / "up.log").open("ab") as log:
        process: Process
        if python == sys.executable:
            process = forking().start(
                words, environment, stdout=log.fileno(), stderr=log.fileno(), program=program
            )
        else:
            whole = [python, "-m", program, *words]
            process = subprocess.Popen(whole, env=environment, stdout=log, stderr=log)
    up = Up(f"http://127.0.0.1:{port}", state_dir)
    try:
        _wait_until_healthy(up, process)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return up, process


def remove_leftovers(state_dir: Path) -> None:
    """What outlives a server by design: the mounted pool, and cgroup parents."""
    _unmount_below(state_dir)
    remove_cgroups(state_dir)


def destroy_everything(up: Up) -> None:
    """Sandboxes outlive their server, by design; a test's must not."""
    with Sandboxer(owner_file=up.owner_file, url=up.url) as client:
        for sandbox in client.list(limit=500):
            client.sandbox(sandbox.id).destroy()


def end_everything(up: Up, server: Process) -> None:
    """The end of a test that kills its server. One that did not come back is not complained about here: that
    would hide why it did not."""
    try:
        destroy_everything(up)
    except Unreachable:
        kill_everything(up.state_dir)
    server.terminate()
    server.wait(30)
    remove_leftovers(up.state_dir)


def free_port() -> int:
    with listen("127.0.0.1", 0) as probe:
        return int(probe.getsockname()[1])


def _wait_until_healthy(up: Up, process: Process) -> None:
    # A machine that does much else takes long to make a pool.
    deadline = time.monotonic() + 180
    while True:
        assert process.poll() is None, (up.state_dir / "up.log").read_text()
        try:
            if httpx.get(f"{up.url}/readyz", timeout=2, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, (up.state_dir / "up.log").read_text()
        time.sleep(0.05)


def _unmount_below(folder: Path) -> None:
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        target = line.split(" ")[4]
        if target.startswith(f"{folder}/"):
            subprocess.run(["umount", "-d", target], check=True)
    # A gigabyte or three each, and of no use any more: all of a run together would fill a disk.
    for pool in folder.rglob("pool.btrfs"):
        pool.unlink()
